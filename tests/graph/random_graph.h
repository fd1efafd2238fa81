// Random graphs of all operations: recipes from which a graph can be built again, made smaller, and printed.
#pragma once

#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/operation.h"
#include "support/random_choices.h"

namespace tessera::graph {

/// An output of an item of a recipe.
struct ItemOutput {
  size_t item = 0;
  size_t output = 0;

  auto operator<=>(const ItemOutput&) const = default;
};

struct Recipe;

/// A leaf, or an operation on earlier items.
struct Item {
  Kind kind = Kind::result;
  TensorType type = {};  ///< type of a leaf
  double low = -1;
  double high = 1;
  uint32_t below = 1;
  Array given = {};  ///< contents that are not random

  std::string operation = {};
  std::vector<ItemOutput> inputs = {};
  Attributes attributes = {};
  std::shared_ptr<const Recipe> body = {};      ///< function of a call or a loop
  std::shared_ptr<const Graph> case_body = {};  ///< or the function of a case
  std::optional<Loop> loop = {};                ///< how `body` is repeated
  std::optional<uint32_t> stage = {};           ///< stage on which it runs, in a function of its own if it
                                                ///< has none

  bool is_state() const { return kind == Kind::parameter || kind == Kind::state; }
};

/// How a graph is trained: by the mean of some values, or of their squares.
struct Lesson {
  std::vector<ItemOutput> losses = {};
  bool squared = false;
  bool has_gradient_outputs = false;
  bool has_updates = true;  ///< otherwise the gradients of parameters are outputs
  TrainingOptions options = {};
};

struct Recipe {
  std::vector<Item> items = {};
  std::vector<ItemOutput> outputs = {};
  std::vector<std::pair<size_t, ItemOutput>> assignments = {};  ///< of an item's output to an item
  std::optional<Lesson> lesson = {};

  bool has_type(Type type) const;
};

/// A recipe's graph, and the values of its items.
struct Built {
  Graph graph;
  std::vector<std::vector<Value>> values;
};

/// Patterns that replace the patterns of items.
using Patterns = std::map<size_t, Pattern>;

/// Builds a recipe's graph. Throws UsageError for an invalid recipe.
void build(const Recipe& recipe, Built& built, const Patterns& patterns = {});

struct GraphOptions {
  uint32_t operations = 6;
  bool hosts_only = false;  ///< whether operations may occur that modelled machines refuse
  uint32_t most_replicas = 1;
};

/// A recipe of a graph whose values are finite numbers of moderate size for random contents of its leaves.
Recipe random_recipe(uint64_t seed, const GraphOptions& options);

/// The name of an item's value.
std::string name_of_item(size_t item);

/// Contents of a leaf with `elements` elements.
Array contents_of(const Item& item, uint64_t elements, uint64_t seed, uint32_t stream);

/// Recipes that are a little smaller.
std::vector<Recipe> smaller(const Recipe& recipe);

/// The graph as C++ that builds it.
std::string code_of(const Recipe& recipe);

}  // namespace tessera::graph
