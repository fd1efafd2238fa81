// The values of a file, as far as they are known while its graph is made.
#pragma once

#include <tessera/graph.h>
#include <tessera/sparse.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/constant.h"
#include "onnx/weights.h"

namespace tessera::onnx {

/// A value of the file: a constant, or a value of the graph.
struct Known {
  DataType type = DataType::f32;
  Dims dims = {};
  ConstantPointer constant = {};
  /// Has the elements of `dims`; more than five dimensions are merged into fewer.
  std::optional<graph::Value> value = {};

  bool is_constant() const { return constant != nullptr; }
};

Known known(ConstantPointer constant);
Known known(graph::Value value, DataType type);

/// softmax(scale · q · kᵀ + bias), which becomes an attention if a product with values follows.
struct Scores {
  graph::Value q;
  graph::Value k;  ///< [..., size, keys]
  double scale = 1;
  std::optional<Known> bias = {};
};

/// The scale and the zero point of a quantised value; no zero point: 0.
struct Quantised {
  Known scale;
  std::optional<Known> zero = {};
};

/// A graph that is being made, and the origins of some of its values.
struct Context {
  explicit Context(graph::Graph& g) : graph(g) {}

  graph::Graph& graph;
  WeightForms* weights = nullptr;  ///< null: constants do not become parameters, as while constants are
                                   ///< computed
  const ImportOptions* options = nullptr;
  std::vector<LayerChoice> layers = {};
  /// A weight of products, and its place among the layers.
  struct WeightValue {
    graph::Value value;
    size_t layer;
  };
  std::map<std::pair<const Constant*, bool>, WeightValue> weight_values = {};
  /// By stack, and whether its matrices are transposed.
  std::map<std::pair<const Constant*, bool>, std::vector<graph::Value>> weights_of_groups = {};
  std::map<std::pair<const Constant*, Type>, graph::Value> constants = {};
  /// Reordered weights of convolutions, by constant and groups.
  std::map<std::pair<const Constant*, uint32_t>, ConstantPointer> reordered = {};
  std::map<std::pair<const Constant*, Dims>, ConstantPointer> in_other_shapes = {};
  std::vector<ConstantPointer> held = {};  ///< kept alive, so that no other constant gets their addresses
  /// A product to which a bias may be added.
  struct ProductWithoutBias {
    graph::Value x;
    graph::Value weight;
  };
  std::map<graph::ValueId, ProductWithoutBias> products = {};
  /// Values that are a number times another value.
  std::map<graph::ValueId, std::pair<graph::Value, double>> scaled = {};
  std::map<graph::ValueId, Scores> scores = {};
  std::map<graph::ValueId, Scores> probabilities = {};   ///< softmax of scores
  std::map<graph::ValueId, graph::ValueId> guards = {};  ///< by value that says whether a softmax is NaN:
                                                         ///< the softmax
  /// Values that are another value with its last two dimensions exchanged.
  std::map<graph::ValueId, graph::Value> transposes = {};
  /// Values that represent quantised values by their dequantised numbers.
  std::map<graph::ValueId, Quantised> quantised = {};
  std::set<std::string> notes = {};
  /// Steps, such as products, that computing constants may still take.
  double work = std::numeric_limits<double>::infinity();
  uint64_t left = 0;             ///< number of elements of constants that may still be computed
  uint64_t memory = UINT64_MAX;  ///< bytes of the host's memory

  /// Counts elements that are computed. Throws Error if they are too many.
  void spend(uint64_t elements);
  /// Throws Error if there are too many elements, without counting them.
  void require_left(uint64_t elements) const;
  /// Counts steps of computing constants. Throws UsageError if they are too many.
  void count_work(double steps);
  /// Throws Error, naming `what` needs the bytes, if the host has less memory.
  void require_memory(uint64_t bytes, std::string_view what) const;
  /// Called before a value is padded by constants: throws Error, or UsageError, if it would become too large.
  void require_room(const Dims& padded, DataType type) const;
  /// A matrix as the weight [outputs, inputs] of a product with `rows` rows, sparse if that pays;
  /// `transposed`: the matrix is [inputs, outputs]. A computed matrix gets the given name. `of`: it is the
  /// weight of a convolution in groups.
  graph::Value weight_of(const ConstantPointer& matrix, bool transposed, uint32_t rows,
                         const std::string& name, const ConvolutionGroups& of = {});
  /// A matrix of which an embedding takes rows: if noted, the weight of products that read it unchanged.
  graph::Value table_of(const ConstantPointer& matrix);
  /// Notes the matrices whose dense form, beside a sparse form for products, only embeddings use. Returns
  /// whether there are any.
  bool note_tables() const;
  /// The matrices [outputs, inputs] of a stack of three dimensions as sparse weights of products with `rows`
  /// rows each; none: one does not pay, so the stack stays dense. `transposed`: they are [inputs, outputs].
  std::vector<graph::Value> weights_of(const ConstantPointer& stack, bool transposed, uint32_t rows,
                                       const std::string& name);
  /// Notes a weight of which no sparse form is possible, and why.
  void leave(const Constant& weight, const std::string& name, std::string_view reason);
  /// Notes which weights of products are copies of values that other operations use. Such weights have no
  /// layer of their own.
  void note_copies();
  /// A constant as a value of the graph; a named constant that is not a scalar becomes a parameter.
  graph::Value value_of(const ConstantPointer& constant);
};

}  // namespace tessera::onnx
