// What an operation of a graph is: one file of operations/ defines each.
#pragma once

#include <tessera/graph.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "machine/model/machine.h"
#include "ops/product_problem.h"

namespace tessera::graph {

class Lowering;
struct LayoutChoice;

using Types = std::vector<TensorType>;
/// Elements in float64, row-major; of a sparse matrix its blocks.
using Array = std::vector<double>;

/// What an operation's shape rule sees.
struct Signature {
  std::string_view operation;
  const Types& inputs;
  const Node& attributes;        ///< a node without outputs
  const Graph* graph = nullptr;  ///< that has the node's inputs, if they are known
};

class FunctionGradients;

/// What an operation's gradient sees: its node, and the gradients of its outputs, if there are any.
struct Differentiation {
  Graph& graph;
  Node node;
  std::vector<std::optional<Value>> dy;
  FunctionGradients& functions;
  std::vector<bool> needed;  ///< by input, whether its gradient is
  uint32_t& forward_nodes;   ///< before those that gradients add; a decomposition takes a node's place

  Value input(size_t i) const { return graph.value(node.inputs.at(i)); }
  Value output(size_t i) const { return graph.value(node.outputs.at(i)); }
};
using Gradients = std::vector<std::optional<Value>>;

/// The type of a dense value.
inline TensorType dense_type(Type type, Shape shape) { return {type, std::move(shape), {}, {}}; }

/// What sets apart the random numbers that one operation draws: the numbers of the replica, of the
/// micro-batch, and of the calls around the operation, the innermost first, each loop as the pass and itself;
/// 0 stands for what is not there, and draws as if there were no such word. Empty: everything draws the same.
using Substream = std::vector<uint32_t>;

/// What an operation's reference sees.
struct Evaluation {
  const Graph& graph;
  const Node& node;
  std::vector<const Array*> inputs = {};
  uint32_t replica = 0;
  Substream substream = {};

  const TensorType& input_type(size_t i) const { return graph.type(node.inputs.at(i)); }
  const TensorType& output_type(size_t i) const { return graph.type(node.outputs.at(i)); }
};

/// What an operation's decomposition sees: its node, and the values in the inputs' places.
struct Decomposition {
  const Node& node;
  std::vector<Value> inputs;
};

/// A use of an operation that tests, gradient checks and the benchmark run.
struct Case {
  Types inputs;
  Attributes attributes = {};
  /// Of the first input's values: uniform in (low, high).
  double low = -1;
  double high = 1;
  /// Largest value of integer inputs.
  uint32_t below = 1;
  bool differentiable = true;
  bool hosts_only = false;                 ///< modelled machines refuse it
  std::shared_ptr<const Graph> body = {};  ///< of a call
  std::map<size_t, Array> given = {};      ///< contents of inputs that are not random
};

/// The operand that an operation takes as the weight of a product.
struct WeightOperand {
  size_t operand = 0;
  ProductKind product = ProductKind::forward;  ///< of SDDMM the result is the weight's gradient
};

/// What the lists of spikes have to fit that an operation takes as its first two operands.
struct ListOperands {
  uint32_t batch = 0;
  uint32_t neurons = 0;
};

/// A node of whose operands some hold an equal part of their first dimension for each sample, and the others
/// the same for all samples.
struct Divided {
  const Graph& graph;
  const Node& node;
  std::vector<bool> operands;  ///< whether they are divided

  const Shape& shape(size_t operand) const { return graph.type(node.inputs[operand]).shape; }
  bool are_all() const { return std::ranges::find(operands, false) == operands.end(); }
  /// Only the first operand, in rows of the last dimension.
  bool are_rows_of_first() const {
    return operands[0] && std::ranges::count(operands, true) == 1 && shape(0).size() > 1;
  }
};

/// Dimensions in another order: dimension i is dimension order[i] of another value.
using DimensionOrder = std::vector<int64_t>;

/// An operation on inputs whose dimensions are in the order in which they lie.
struct Reordered {
  DimensionOrder before = {};  ///< in which the inputs are needed; none: as they lie
  Attributes attributes;
  DimensionOrder order;  ///< of the result as the node has it, in that of the operation
};

/// How an operation combines each element with one of its other operand or, if it has a single one, with its
/// attribute "factor".
enum class Combines : uint8_t { otherwise, multiplies, divides, adds };

/// What the rest of the library knows of an operation.
struct Traits {
  std::optional<WeightOperand> weight = {};
  /// The operand, if it is not that of a product, of whose row i feature i of the result is a multiple; a
  /// bias may follow it.
  std::optional<size_t> row_weight = {};
  /// By output of an optimizer's update, the first ones: the operand whose new contents it is. The first is
  /// the parameter, or state of it; operand 0 is the gradient, and other outputs lie as these do.
  std::span<const size_t> updates = {};
  /// Whether elements of the results are 0 where those of the padded inputs are; others are scalars. Then it
  /// runs on weights in the form that products read, with its padding, and on sparse values. null: never.
  bool (*keeps_zeros)(const std::vector<bool>& padded) = nullptr;
  /// Whether each part of the first dimension of all results depends on the same part of the divided operands
  /// and on all of the others; of none, whether all parts are alike. null: never.
  bool (*keeps_samples)(const Divided& divided) = nullptr;
  /// Each element of the result depends on the same one of each input, which are broadcast, and on nothing
  /// else.
  bool elementwise = false;
  Combines combines = Combines::otherwise;
  /// The same operation on what its inputs have in another order; none: it takes them as they are. null:
  /// never.
  std::optional<Reordered> (*reorder)(const Graph&, const Node&, const DimensionOrder&) = nullptr;
  /// The order of a node that is nothing but a permutation; none: it is more. null: never.
  std::optional<DimensionOrder> (*permutes)(const Node&) = nullptr;
  bool aliases = false;  ///< its result may lie where its input does
  bool draws = false;    ///< random numbers, which differ between replicas only
  /// Whether a node draws numbers for its elements by where they are in a value. null: none does, but those
  /// that draw or have sub-streams.
  bool (*draws_by_place)(const Node&) = nullptr;
  /// Whether a node draws some that differ between replicas, micro-batches and calls of a function; null:
  /// none does.
  bool (*has_substreams)(const Node&) = nullptr;
  bool is_loop = false;          ///< runs the function of its node several times
  bool zero_derivative = false;  ///< wherever there is a derivative
  ListOperands (*lists)(const Graph& graph, const Node& node) = nullptr;
  /// Of a collective: what all replicas get from the results of each.
  Array (*over_replicas)(std::span<const Array* const> results) = nullptr;
  /// Of a collective: whether it is over all micro-batches too, before any of them.
  bool over_step = false;
};

/// An operation is lowered by itself, or defined by others, which then give its reference and its gradient as
/// well where it has none, and run instead of it on machines for which it has no `lower`.
struct Operation {
  std::string_view name;
  size_t least_inputs = 1;
  size_t most_inputs = 1;
  /// Types of the outputs; throws UsageError for inputs or attributes that it does not take.
  Types (*infer)(const Signature&) = nullptr;
  /// Gradients of the inputs, in their order; null: those of the decomposition, or there are none.
  Gradients (*gradient)(const Differentiation&) = nullptr;
  std::vector<Array> (*reference)(const Evaluation&) = nullptr;
  /// The layouts of inputs and outputs in which the operation can run.
  std::vector<LayoutChoice> (*layouts)(Lowering&, const Node&) = nullptr;
  void (*lower)(Lowering&, const Node&) = nullptr;
  std::vector<Case> (*cases)() = nullptr;
  Traits traits = {};
  /// Takes over an operation of which an input is this one's only result and has no other use: the node that
  /// computes both; none: it cannot. null: never.
  std::optional<Node> (*absorb)(const Graph& graph, const Node& own, const Node& next) = nullptr;
  /// Applies the operations that define it, and returns its results, each of another operation. null: there
  /// are none.
  std::vector<Value> (*decompose)(const Decomposition&) = nullptr;
  /// Whether `lower` is for a machine, beside a decomposition; null: for every machine.
  bool (*lowers_on)(const machine::Machine&) = nullptr;

  bool is_differentiable() const { return gradient != nullptr || decompose != nullptr; }
  /// Whether its decomposition runs instead of it.
  bool is_decomposed_on(const machine::Machine& machine) const {
    return decompose != nullptr && (lower == nullptr || (lowers_on != nullptr && !lowers_on(machine)));
  }
};

/// Results of an operation in float64: those of its reference, or of its decomposition.
std::vector<Array> results_of(const Evaluation& evaluation);
/// Results of a loop.
std::vector<Array> results_of_passes(const Evaluation& evaluation);
/// Results of a function in float64, in the order of their names.
std::vector<Array> results_of(const Graph& function, const std::vector<const Array*>& inputs,
                              const Substream& substream);

/// Of operations on each element, on rows of the first operand's last dimension, and on a dimension.
inline bool elements_keep_samples(const Divided& divided) { return divided.operands[0]; }
inline bool rows_keep_samples(const Divided& divided) { return divided.are_rows_of_first(); }
inline bool rows_of_all_keep_samples(const Divided& divided) {
  return divided.shape(0).size() > 1 && divided.are_all();
}
template <const char* name>
bool keeps_samples_unless_first(const Divided& divided) {
  return divided.node.integer(name) > 0 && divided.are_all();
}

/// Each element of the results is 0 where that of any padded input is.
inline bool always_keeps_zeros(const std::vector<bool>&) { return true; }

/// Whether a node is an optimizer's update; the parameter that it, or whose state it changes; all that it
/// changes, by output.
bool is_update(const Node& node);
ValueId updated_parameter(const Graph& graph, const Node& node);
std::vector<ValueId> updated_values(const Node& node);

/// The weight of a product; none: the operation is another one, or a call.
std::optional<ValueId> weight_input(const Node& node);
/// Whether it computes the gradient of a weight, of which it reads the pattern only.
bool is_weight_gradient(const Node& node);

/// Throw UsageError for a sparse input, and for a value of integers.
void require_dense(const Signature& signature);
void require_float(const Signature& signature, const TensorType& value);
/// The attribute "shape". Throws UsageError for sizes that are none.
Shape shape_of(const Signature& signature);

/// Throws UsageError if there is none of that name.
const Operation& find_operation(std::string_view name);
std::span<const Operation* const> all_operations();

}  // namespace tessera::graph
