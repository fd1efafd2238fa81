// Weights of linear operations: the layout of their values in a program, and their three products.
#pragma once

#include <tessera/graph.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/run.h"
#include "kernels/common/window.h"
#include "lower/layout.h"
#include "ops/builder.h"
#include "ops/map/map.h"
#include "ops/product_problem.h"

namespace tessera::graph {

/// A product between operands of a program.
struct LinearCall {
  ProductKind product = ProductKind::forward;
  ops::Operand values = {};               ///< W, or dW
  ops::Operand x = {};                    ///< X or dX, in the layout that the weight requires
  ops::Operand y = {};                    ///< Y or dY
  uint32_t n = 0;                         ///< rows of the batch
  std::optional<ops::Operand> bias = {};  ///< 1 × m on hosts, m × 1 on tiles
  Activation activation = Activation::none;
  std::optional<ops::Operand> mask = {};  ///< of the shape of x: dX is 0 where the mask is not positive
  bool adds = false;                      ///< forward: adds the product to the contents of Y
  /// On hosts: x holds images, and X the elements under the window in them; dX is added to the images of an
  /// input gradient in FP32.
  std::optional<kernels::Window> window = {};
};

/// Rows of a weight, or of its gradient, that a list names at run time.
struct RowsCall {
  ops::Operand list = {};    ///< u32, a column
  ops::Operand values = {};  ///< W, or dW in FP32
  ops::Operand rows = {};    ///< rows × features: of the type of W, or in FP32
  std::optional<uint32_t> skipped = {};
};

/// An update of a weight by its gradient, which is the operation's operand 0.
struct LinearUpdate {
  ops::MapOperation operation;
  std::vector<ops::Operand> operands;  ///< without the gradient
};

/// Layouts of X and Y as matrices of features × rows.
struct PartedActivations {
  ops::OperandLayout x, y;
};

/// A weight in the form that the products of a machine read. Gradients and optimizers' state have the same
/// form.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;

  /// The layout of a variable with the weight's values.
  virtual ops::OperandLayout layout() const = 0;
  /// Type of the values that products read, and type of the gradient.
  virtual Type type() const = 0;
  virtual Type gradient_type() const = 0;
  /// Type of X and Y.
  virtual Type activation_type() const = 0;
  /// Type of X and Y in a given product, which may differ.
  virtual Type activation_type_of(const ops::Builder&, const LinearCall&) const { return activation_type(); }
  /// Layouts of X and Y: rows or transposed, if they have no parts.
  virtual ValueLayout activations() const { return kTransposed; }
  /// Layouts of X and Y in a product with `n` rows that takes them in parts.
  virtual std::optional<PartedActivations> parted_activations(ProductKind /*product*/, uint32_t /*n*/) {
    return {};
  }
  /// Whether gradients leave elements unwritten, which must be 0 in the variable.
  virtual bool gradient_has_gaps() const { return false; }
  /// Whether products take a mask.
  virtual bool takes_mask() const { return false; }
  /// Whether products can add to the contents of Y.
  virtual bool can_add() const { return false; }

  virtual program::StepId add(const ops::Builder& builder, const LinearCall& call) = 0;
  /// Takes rows of W, or sums rows to dW but for one that is skipped, where a sparse weight has elements. On
  /// hosts.
  virtual program::StepId add_taking(const ops::Builder& builder, const RowsCall& call);
  virtual program::StepId add_summing(const ops::Builder& builder, const RowsCall& call);
  /// The gradient and the update in one superstep, without storing the gradient; none: the weight does not
  /// support it.
  virtual std::optional<program::StepId> add_updating(const ops::Builder&, const LinearCall&,
                                                      const LinearUpdate&) {
    return {};
  }

  /// Converts values, row-major or for a sparse weight in the order of SparseMatrix::values, to the stored
  /// form, and back.
  virtual std::vector<float> store(std::span<const float> values) const { return layout().store(values); }
  virtual std::vector<float> load(std::span<const float> stored) const;

  /// The bindings of a run besides the values.
  virtual std::vector<engine::Binding> bindings() { return {}; }
  /// The present pattern of a sparse weight.
  virtual Pattern pattern() const { return {}; }
  /// Changes the pattern of a weight with a capacity. Throws UsageError for other weights.
  virtual void set_pattern(const Pattern& pattern);
};

/// How operations use a value as a weight, in functions and loops too.
struct WeightUse {
  uint32_t rows = 0;              ///< of the batch of the first product; 0: there is none
  uint32_t rows_taken = 0;        ///< rows of the weight that lists choose
  Type type = Type::f32;          ///< the type of all products, or one that holds all of their types
  PartialSums partial_sums = {};  ///< of products on tiles
  bool has_gradients = false;     ///< whether there are products for gradients
  /// Whether all that reads it are products: functions, whose weights are planned by themselves, have to find
  /// it as their callers do.
  bool is_forward_only = true;

  void add(const WeightUse& other) {
    if (rows != 0 && other.rows != 0 && type != other.type) type = Type::f32;
    if (rows == 0) rows = other.rows, type = other.type;
    rows_taken += other.rows_taken;
    has_gradients = has_gradients || other.has_gradients;
    is_forward_only = is_forward_only && other.is_forward_only;
  }
};

/// By value: how a graph, its functions and loops included, uses it as a weight.
std::map<ValueId, WeightUse> uses_of_weights(const Graph& graph, const WeightForms& forms);

/// A weight on the builder's machine. `name` is the name of its parameter.
std::unique_ptr<LinearWeight> make_weight(const ops::Builder& builder, const TensorType& type,
                                          const std::string& name, const WeightUse& use);

}  // namespace tessera::graph
