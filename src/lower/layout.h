// Where the values of a graph lie in a program, chosen for all of them together.
#pragma once

#include <tessera/graph.h>

#include <any>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/layout.h"
#include "program/program.h"

namespace tessera::graph {

class Lowering;

/// The order of a value's elements. A value of shape [..., features] is a matrix of rows × features.
struct ValueLayout {
  bool transposed = false;             ///< features × rows
  std::optional<ValueId> weight = {};  ///< in the form in which products read this weight, with its padding
  /// Part by part, as the plan of a product on tiles has its activations; Lowering::parted() makes equal ones
  /// one object.
  std::shared_ptr<const ops::OperandLayout> parts = {};

  /// Of a value of fewer than two dimensions with the elements of so many passes of a loop: a row for each;
  /// 0: one row.
  uint32_t passes = 0;

  bool operator==(const ValueLayout&) const = default;

  /// A matrix, row by row.
  bool is_matrix() const { return !weight && !parts; }
};

inline const ValueLayout kRows = {};
inline const ValueLayout kTransposed = {.transposed = true};

/// A matrix of a value's type as an operand.
ops::OperandLayout matrix_layout(const TensorType& type, bool transposed);

/// One way to run an operation: the layouts of its inputs and outputs, and what it costs.
struct LayoutChoice {
  std::vector<ValueLayout> inputs;
  std::vector<ValueLayout> outputs;
  double seconds = 0;
  /// By input: where it shall lie on tiles if it is no result; none, or empty: anywhere.
  std::vector<std::vector<program::MappedBox>> mappings = {};
  std::any plan = {};  ///< of the operation in these layouts, if it was made for its cost
};

/// The time on a machine of steps that are all of a program.
double seconds_alone(const machine::Machine& machine,
                     const std::function<program::StepId(const ops::Builder&)>& build);

/// All inputs and outputs as rows, or all transposed; or in the form of a weight, if the outputs are: for
/// operations that may also run on transposed matrices.
std::vector<LayoutChoice> same_layouts(Lowering& lowering, const Node& node);
/// These, and parts: for operations on each element, whatever its position.
std::vector<LayoutChoice> elementwise_layouts(Lowering& lowering, const Node& node);
/// All as rows.
std::vector<LayoutChoice> row_layouts(Lowering& lowering, const Node& node);

/// The layout in which a caller has a value that is bound: matrices as they lie, others as matrices.
ValueLayout bound_layout(const ValueLayout& layout);

/// The layouts chosen for a graph.
struct ChosenLayouts {
  std::vector<LayoutChoice> nodes;  ///< by node
  std::vector<ValueLayout> values;  ///< by value: as it is computed or bound
};

/// By value: the weight in whose form it lies, if it does.
using WeightForms = std::vector<std::optional<ValueId>>;

/// Leaves that products take as weights, or of which only the blocks exist, lie in the form of a weight, and
/// with them their gradients, optimizers' state, and what is computed from them element by element so that
/// padding stays 0.
WeightForms weight_forms(const Graph& graph);
/// Of a function: its inputs lie as its callers' values do, and those of a loop that are the same in all
/// passes.
WeightForms forms_of_body(const Node& node);

/// The weight whose form a product's weight has, or is brought to: that in whose form it lies, or itself.
inline ValueId weight_of(const WeightForms& forms, ValueId id) { return forms.at(id).value_or(id); }
/// The values that a product or a call takes in the form of weights.
std::vector<ValueId> weights_of(const Node& node);

/// Chooses layouts so that operations and conversions between them take the least time.
ChosenLayouts choose_layouts(Lowering& lowering);

}  // namespace tessera::graph
