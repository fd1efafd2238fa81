// What is known of the values of a file while its graph is made.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "onnx/constant.h"
#include "onnx/weights.h"

namespace tessera::onnx {

/// A value of the file: a constant, or a value of the graph.
struct Known {
  DataType type = DataType::f32;
  Dims dims = {};
  ConstantPointer constant = {};
  /// Has the elements of `dims`; of more than five dimensions, in a shape of fewer.
  std::optional<graph::Value> value = {};

  bool is_constant() const { return constant != nullptr; }
};

Known known(ConstantPointer constant);
Known known(graph::Value value, DataType type);

/// softmax(scale · q · kᵀ + bias), before it is known whether a product with values follows, which makes it
/// an attention.
struct Scores {
  graph::Value q;
  graph::Value k;  ///< [..., size, keys]
  double scale = 1;
  std::optional<Known> bias = {};
};

/// By what a quantised value would have been divided, and to what it would be shifted; none: 0.
struct Quantised {
  Known scale;
  std::optional<Known> zero = {};
};

/// A graph in the making, and from what some of its values were computed.
struct Context {
  explicit Context(graph::Graph& g) : graph(g) {}

  graph::Graph& graph;
  WeightForms* weights = nullptr;  ///< null: constants are no parameters, as while constants are computed
  const ImportOptions* options = nullptr;
  std::vector<LayerChoice> layers = {};
  std::map<std::pair<const Constant*, bool>, graph::Value> weight_values = {};
  std::map<std::pair<const Constant*, Type>, graph::Value> constants = {};
  /// Weights of convolutions, by whether these are transposed, and groups.
  std::map<std::tuple<const Constant*, bool, uint32_t>, ConstantPointer> reordered = {};
  std::vector<ConstantPointer> held = {};  ///< so that no other constant gets the address
  /// Products without a bias, which may get one.
  struct Product {
    graph::Value x;
    graph::Value weight;
  };
  std::map<graph::ValueId, Product> products = {};
  /// Values that are others times a number.
  std::map<graph::ValueId, std::pair<graph::Value, double>> scaled = {};
  std::map<graph::ValueId, Scores> scores = {};
  std::map<graph::ValueId, Scores> probabilities = {};   ///< softmax of scores
  std::map<graph::ValueId, graph::ValueId> guards = {};  ///< whether a softmax is NaN
  /// Values whose last two dimensions are those of another one, exchanged.
  std::map<graph::ValueId, graph::Value> transposes = {};
  /// Values that stand for quantised ones: they are what those are dequantised to.
  std::map<graph::ValueId, Quantised> quantised = {};
  std::set<std::string> notes = {};
  uint64_t left = 0;             ///< elements of constants that may still be computed
  uint64_t memory = UINT64_MAX;  ///< bytes that this computer has

  /// Counts elements that are computed. Throws Error if they are too many.
  void spend(uint64_t elements);
  /// The same without counting them.
  void require_left(uint64_t elements) const;
  /// Throws Error, naming what takes so many bytes, if there are fewer.
  void require_memory(uint64_t bytes, std::string_view what) const;
  /// Before a value is padded by constants: throws Error, or UsageError, if it would be too large with these.
  void require_room(const Dims& padded, DataType type) const;
  /// A matrix as the weight [outputs, inputs] of a product with so many rows, sparse where that pays;
  /// `transposed`: it is [inputs, outputs]. A matrix that was computed gets the name given.
  graph::Value weight_of(const ConstantPointer& matrix, bool transposed, uint32_t rows,
                         const std::string& name);
  /// Notes a weight of which no sparse form is possible, and why.
  void leave(const Constant& weight, const std::string& name, std::string_view reason);
  /// A constant in the graph; a named one that is no scalar becomes a parameter.
  graph::Value value_of(const ConstantPointer& constant);
};

}  // namespace tessera::onnx
