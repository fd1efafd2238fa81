// Layouts of a graph's values in a program, chosen for all values together.
#pragma once

#include <tessera/graph.h>

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/memo.h"
#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/layout.h"
#include "program/program.h"

namespace tessera::graph {

class Lowering;

/// What is chosen for a value of a graph: which ops::OperandLayout its matrix of rows × features has,
/// whatever its sizes. Lowering::operand_layout() returns that layout; what operands cost, and how they are
/// converted, follows from it alone.
struct ValueLayout {
  bool transposed = false;             ///< features × rows
  std::optional<ValueId> weight = {};  ///< the value has the form in which products read this weight, with
                                       ///< its padding
  /// Part by part, as a product's plan on tiles lays out activations; Lowering::parted() makes equal layouts
  /// one object.
  std::shared_ptr<const ops::OperandLayout> parts = {};

  /// For a value of fewer than two dimensions that holds the elements of several passes of a loop: number of
  /// passes, with a row each; 0: one row.
  uint32_t passes = 0;

  bool operator==(const ValueLayout&) const = default;

  /// Whether the value is a plain matrix, transposed or not.
  bool is_matrix() const { return !weight && !parts; }
};

inline const ValueLayout kRows = {};
inline const ValueLayout kTransposed = {.transposed = true};

/// The operand layout of a value of this type as a matrix.
ops::OperandLayout matrix_layout(const TensorType& type, bool transposed);

/// One way to run an operation: the layouts of its inputs and outputs, and its cost.
struct LayoutChoice {
  std::vector<ValueLayout> inputs;
  std::vector<ValueLayout> outputs;
  double seconds = 0;
  /// By input: its mapping to tiles, if it is not a result of another operation; none, or empty: any mapping.
  std::vector<std::vector<program::MappedBox>> mappings = {};
  std::any plan = {};  ///< plan of the operation in these layouts, if one was made to compute the cost

  /// Whether an input or output is transposed. Where all matrices lie alike, single elements still lie as
  /// rows, so that not every one says it.
  bool is_transposed() const;
};

/// The time on a machine of a program that consists of the built step.
double seconds_alone(const machine::Machine& machine,
                     const std::function<program::StepId(const ops::Builder&)>& build);

/// The same, counted once for all calls from one place with equal keys; the key determines the program.
template <class Key, class Build>
double seconds_alone(const machine::Machine& machine, Key key, const Build& build) {
  struct Made {
    Key key;
    machine::Machine machine;

    bool operator==(const Made& other) const { return key == other.key && machine.is_like(other.machine); }
  };
  constexpr size_t kMost = 256;
  static base::Memo<Made, double> known(kMost);
  return known.get({std::move(key), machine}, [&] { return seconds_alone(machine, build); });
}

/// Choices for operations that may also run on transposed matrices: all inputs and outputs as rows, or all
/// transposed; or in the form of a weight, if the outputs have it.
std::vector<LayoutChoice> same_layouts(Lowering& lowering, const Node& node);
/// Choices for operations on each element, whatever its position: the choices of same_layouts(), and parts.
std::vector<LayoutChoice> elementwise_layouts(Lowering& lowering, const Node& node);
/// The choice with all inputs and outputs as rows.
std::vector<LayoutChoice> row_layouts(Lowering& lowering, const Node& node);

/// Choices for operations between a value and the parts that replicas have of it: with the last operand, as
/// whose elements the parts lie, as rows, transposed, or in its form.
std::vector<LayoutChoice> shard_layouts(Lowering& lowering, const Node& node);

/// The layout in which a caller binds a value: matrices in their own layout, other layouts as matrices.
ValueLayout bound_layout(const ValueLayout& layout);

/// The layouts in which callers pass a function's inputs and take its outputs, as far as they are agreed;
/// none for an output: the layout in which it is computed.
using Boundary = std::map<ValueId, std::optional<ValueLayout>>;
/// The layout in which an output is given that is computed in the layout `own`.
std::optional<ValueLayout> given_layout(const Boundary& boundary, ValueId id, const ValueLayout& own);

/// The layouts chosen for a graph.
struct ChosenLayouts {
  std::vector<LayoutChoice> nodes;  ///< by node
  std::vector<ValueLayout> values;  ///< by value: the layout in which it is computed or bound
};

/// By value: the weight whose form it has, if any.
using WeightForms = std::vector<std::optional<ValueId>>;

/// The values with the form of a weight: leaves that products take as weights or that are sparse, their
/// gradients and optimizers' state, and values computed from these element by element such that padding stays
/// 0.
WeightForms weight_forms(const Graph& graph);
/// The forms of values in a function, whose inputs have the form of the caller's values; for a loop, only
/// inputs that are the same in all passes.
WeightForms forms_of_body(const Node& node);

/// The weight whose form a product's weight has or is converted to: the one in `forms`, or the value itself.
inline ValueId weight_of(const WeightForms& forms, ValueId id) { return forms.at(id).value_or(id); }
/// By value: whether it has the form of a weight with padding that may be NaN, as 0 times an infinite number
/// and 0 divided by 0 are. In a function, the padding of inputs may be NaN.
std::vector<bool> padding_may_be_nan(const Graph& graph, const WeightForms& forms);
/// The values that a product or a call takes in the form of weights.
std::vector<ValueId> weights_of(const Node& node);

/// Chooses layouts so that operations and conversions between them take the least time; also for
/// the functions that the graph calls.
ChosenLayouts choose_layouts(Lowering& lowering);

}  // namespace tessera::graph
