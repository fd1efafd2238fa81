// The definition of an operation of a graph; each operation is defined in one file of operations/.
#pragma once

#include <tessera/graph.h>
#include <tessera/sparse.h>

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
/// Elements in float64, row-major; for a sparse matrix, the values of its blocks.
using Array = std::vector<double>;

/// The arguments of an operation's shape rule.
struct Signature {
  std::string_view operation;
  const Types& inputs;
  const Node& attributes;        ///< a node without outputs
  const Graph* graph = nullptr;  ///< graph of the node's inputs, if known
};

class FunctionGradients;

/// The arguments of an operation's gradient: its node, and the gradients of its outputs, where there are any.
struct Differentiation {
  Graph& graph;
  Node node;
  std::vector<std::optional<Value>> dy;
  FunctionGradients& functions;
  std::vector<bool> needed;  ///< by input, whether its gradient is needed
  uint32_t& forward_nodes;   ///< number of forward nodes, which precede those that gradients add; changes
                             ///< when a decomposition replaces a node

  Value input(size_t i) const { return graph.value(node.inputs.at(i)); }
  Value output(size_t i) const { return graph.value(node.outputs.at(i)); }
};
using Gradients = std::vector<std::optional<Value>>;

/// The type of a dense value.
inline TensorType dense_type(Type type, Shape shape) { return {type, std::move(shape), {}, {}}; }

/// The words that distinguish the random numbers of one operation's executions: the numbers of the replica,
/// of the micro-batch, and of the calls around the operation, innermost first, where each loop has two words,
/// for the pass and for the loop itself. 0 stands for a word that is missing: the same numbers are drawn
/// without it. Empty: all executions draw the same numbers.
using Substream = std::vector<uint32_t>;

/// The arguments of an operation's reference.
struct Evaluation {
  const Graph& graph;
  const Node& node;
  std::vector<const Array*> inputs = {};
  Substream substream = {};

  const TensorType& input_type(size_t i) const { return graph.type(node.inputs.at(i)); }
  const TensorType& output_type(size_t i) const { return graph.type(node.outputs.at(i)); }
};

/// The arguments of an operation's decomposition: its node, and the values of its inputs.
struct Decomposition {
  const Node& node;
  std::vector<Value> inputs;
};

/// A use of an operation that tests, gradient checks and the benchmark run.
struct Case {
  Types inputs;
  Attributes attributes = {};
  /// Bounds of the values of the first input, which are uniform in (low, high).
  double low = -1;
  double high = 1;
  /// Largest value of integer inputs.
  uint32_t below = 1;
  bool differentiable = true;
  bool hosts_only = false;                 ///< whether modelled machines refuse the case
  std::shared_ptr<const Graph> body = {};  ///< function of a call or loop
  std::map<size_t, Array> given = {};      ///< contents of inputs that are not random
};

/// The operand that an operation takes as the weight of a product.
struct WeightOperand {
  size_t operand = 0;
  ProductKind product = ProductKind::forward;  ///< for SDDMM, the node's result is the weight's gradient
};

/// Sizes that the lists of spikes must fit; the lists are an operation's first two operands.
struct ListOperands {
  uint32_t batch = 0;
  uint32_t neurons = 0;
};

/// A node whose operands are either divided, with an equal part of their first dimension per sample, or
/// shared by all samples.
struct Divided {
  const Graph& graph;
  const Node& node;
  std::vector<bool> operands;  ///< by operand: whether it is divided

  const Shape& shape(size_t operand) const { return graph.type(node.inputs[operand]).shape; }
  bool are_all() const { return std::ranges::find(operands, false) == operands.end(); }
  /// Whether the first operand alone is divided, and has rows of its last dimension.
  bool are_rows_of_first() const {
    return operands[0] && std::ranges::count(operands, true) == 1 && shape(0).size() > 1;
  }
};

/// A permutation of dimensions: dimension i of a value is dimension order[i] of another one.
using DimensionOrder = std::vector<int64_t>;

/// An operation rewritten to take its inputs before a permutation of their dimensions.
struct Reordered {
  DimensionOrder before = {};  ///< permutation that the inputs still need; none: they are taken as they lie
  Attributes attributes;
  DimensionOrder order;  ///< permutation from the rewritten operation's result to the node's result
};

/// How an operation combines each element with an element of its other operand or, if it has a single
/// operand, with its attribute "factor".
enum class Combines : uint8_t { otherwise, multiplies, divides, adds };

/// Properties of an operation on which the rest of the library relies, instead of its name.
struct Traits {
  std::optional<WeightOperand> weight = {};
  /// For a product with a weight whose pattern may change: the groups of a convolution that its blocks have
  /// to keep; none: it may be any pattern. null: never any groups.
  std::optional<ConvolutionGroups> (*weight_groups)(const Node&) = nullptr;
  /// The operand, a matrix, from which the result has rows that a list names at run time.
  std::optional<size_t> table = {};
  /// For operations other than products: the operand whose row i scales feature i of the result; a bias may
  /// follow it.
  std::optional<size_t> row_weight = {};
  /// For an optimizer's update: operand updates[i] is the one whose new contents are output i. Operand
  /// updates[0] is the parameter or its state, operand 0 the gradient. Further outputs have the same layout.
  std::span<const size_t> updates = {};
  /// The operand that the operation adds to, element by element: the result lies as the operand does.
  std::optional<size_t> addend = {};
  /// Whether elements of the results are 0 where the elements of the padded inputs are 0, if all other inputs
  /// are scalars. Such an operation runs on weights in the form that products read, with padding, and on
  /// sparse values. null: never.
  bool (*keeps_zeros)(const std::vector<bool>& padded) = nullptr;
  /// Whether each part of the first dimension of all results depends on the same part of the divided operands
  /// and on all of the other operands; if no operand is divided, whether all parts are equal. null: never.
  bool (*keeps_samples)(const Divided& divided) = nullptr;
  /// Whether each element of the result depends only on the element at its position of each input, broadcast.
  bool elementwise = false;
  /// Whether a scalar result is a sum over all elements, and thus the sum of its results for their parts.
  bool sums_elements = false;
  Combines combines = Combines::otherwise;
  /// Rewrites the operation for inputs with permuted dimensions; none: it cannot be. null: never.
  std::optional<Reordered> (*reorder)(const Graph&, const Node&, const DimensionOrder&) = nullptr;
  /// The permutation that a node performs; none: it does more than permute. null: never.
  std::optional<DimensionOrder> (*permutes)(const Node&) = nullptr;
  bool aliases = false;  ///< whether its result may be stored where its input is
  /// Whether the random numbers that a node draws depend on its elements' positions. null: only if it has
  /// sub-streams.
  bool (*draws_by_place)(const Node&) = nullptr;
  /// Whether a node draws random numbers that differ between replicas, micro-batches and calls of a function;
  /// null: never.
  bool (*has_substreams)(const Node&) = nullptr;
  bool is_loop = false;          ///< whether it runs the function of its node several times
  bool zero_derivative = false;  ///< whether its derivative is 0 wherever it exists
  ListOperands (*lists)(const Graph& graph, const Node& node) = nullptr;
  /// For a collective: the result that all replicas get, from the results of each replica; or the result
  /// of a group, from the results in it; see combined_replicas().
  Array (*over_replicas)(std::span<const Array* const> results) = nullptr;
  /// Whether it converts a value to the replicas' parts of it, or back.
  bool shards = false;
  /// For a collective: whether it is over all micro-batches too, and runs before any of them.
  bool over_step = false;
  /// What it does, unless it is elementwise, a call or a loop.
  OperationKind kind = OperationKind::other;
};

/// An operation of graphs. It has a lowering of its own, or is decomposed into other operations, which run
/// instead of it on machines for which it has no `lower`, and define its reference and gradient where those
/// are null.
struct Operation {
  std::string_view name;
  size_t least_inputs = 1;
  size_t most_inputs = 1;
  /// Types of the outputs; throws UsageError for inputs or attributes that it does not take.
  Types (*infer)(const Signature&) = nullptr;
  /// Gradients of the inputs, in their order; null: the gradients of the decomposition, if there is
  /// one.
  Gradients (*gradient)(const Differentiation&) = nullptr;
  std::vector<Array> (*reference)(const Evaluation&) = nullptr;
  /// The layouts of inputs and outputs in which the operation can run.
  std::vector<LayoutChoice> (*layouts)(Lowering&, const Node&) = nullptr;
  void (*lower)(Lowering&, const Node&) = nullptr;
  std::vector<Case> (*cases)() = nullptr;
  Traits traits = {};
  /// Fuses a node with the next node, which is the only user of its only result: returns the node that
  /// computes both; none: they cannot be fused. null: never.
  std::optional<Node> (*absorb)(const Graph& graph, const Node& own, const Node& next) = nullptr;
  /// Applies the operations that define this one, and returns its results, each computed by one of them.
  /// null: there is no decomposition.
  std::vector<Value> (*decompose)(const Decomposition&) = nullptr;
  /// Whether `lower` is used for a node on a machine instead of the decomposition; null: always.
  bool (*lowers_on)(const machine::Machine&, const Graph&, const Node&) = nullptr;

  /// Without a gradient of its own, an operation that computes the gradient of a weight has none.
  bool is_differentiable() const {
    const bool is_of_weight = traits.weight && traits.weight->product == ProductKind::sddmm;
    return gradient != nullptr || (decompose != nullptr && !is_of_weight);
  }
  /// Whether the decomposition runs on a machine instead of a node.
  bool is_decomposed_on(const machine::Machine& machine, const Graph& graph, const Node& node) const {
    return decompose != nullptr &&
           (lower == nullptr || (lowers_on != nullptr && !lowers_on(machine, graph, node)));
  }
};

/// Results of an operation in float64, from its reference or its decomposition.
std::vector<Array> results_of(const Evaluation& evaluation);
/// Results of a loop in float64.
std::vector<Array> results_of_passes(const Evaluation& evaluation);
/// Results of a function in float64, in the order of their names.
std::vector<Array> results_of(const Graph& function, const std::vector<const Array*>& inputs,
                              const Substream& substream);

/// Traits::keeps_samples of operations on each element, on rows of the first operand's last dimension, on
/// such rows of all operands, and along the dimension in attribute `name`.
inline bool elements_keep_samples(const Divided& divided) { return divided.operands[0]; }
inline bool rows_keep_samples(const Divided& divided) { return divided.are_rows_of_first(); }
inline bool rows_of_all_keep_samples(const Divided& divided) {
  return divided.shape(0).size() > 1 && divided.are_all();
}
template <const char* name>
bool keeps_samples_unless_first(const Divided& divided) {
  return divided.node.integer(name) > 0 && divided.are_all();
}

/// Operation::lowers_on of operations that hosts run and tiles decompose.
inline bool lowers_on_hosts(const machine::Machine& machine, const Graph&, const Node&) {
  return machine.kind == machine::Kind::host;
}

/// Traits::keeps_zeros of operations whose results are 0 where any padded input is 0.
inline bool always_keeps_zeros(const std::vector<bool>&) { return true; }

/// Whether a node is an optimizer's update; the parameter that it changes, or whose state it changes; and all
/// values that it changes, by output.
bool is_update(const Node& node);
ValueId updated_parameter(const Graph& graph, const Node& node);
std::vector<ValueId> updated_values(const Node& node);

/// How many consecutive replicas a collective combines: the replicas of a group, as its attribute "group"
/// says, or all. A single replica is a group by itself. Throws UsageError if the replicas are not whole
/// groups.
uint32_t combined_replicas(const Node& node, uint32_t replicas);
/// Whether a collective may begin as soon as its input is complete, while other operations run, as its
/// attribute "overlap" says, which sums of gradients have.
bool may_overlap(const Node& node);
/// Whether a node is such a sum of gradients, overlapped or not.
bool sums_gradients(const Node& node);

/// The weight of a product; none: the node is another operation, or a call.
std::optional<ValueId> weight_input(const Node& node);
/// Whether a node computes the gradient of a weight, for which it reads only the weight's pattern.
bool is_weight_gradient(const Node& node);
/// The number of a node's first inputs of which it reads more than the pattern.
size_t inputs_read(const Node& node);

/// Throw UsageError for a sparse input, and for a value of an integer type.
void require_dense(const Signature& signature);
void require_float(const Signature& signature, const TensorType& value);
/// Throws UsageError unless an input has this type.
void require_type(const Signature& signature, const TensorType& given, std::string_view name,
                  const TensorType& wanted);
/// Numbers as an attribute.
template <class Numbers>
std::vector<int64_t> as_integers(const Numbers& numbers) {
  return {numbers.begin(), numbers.end()};
}
/// The attribute "shape". Throws UsageError for invalid sizes.
Shape shape_of(const Signature& signature);

/// The operation with that name. Throws UsageError if there is none.
const Operation& find_operation(std::string_view name);
std::span<const Operation* const> all_operations();

}  // namespace tessera::graph
