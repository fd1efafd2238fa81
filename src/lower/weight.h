// Weights of linear operations: where their values lie in a program, and their three products.
#pragma once

#include <tessera/graph.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/run.h"
#include "kernels/common/element_order.h"
#include "kernels/common/window.h"
#include "lower/layout.h"
#include "ops/builder.h"
#include "ops/map/map.h"
#include "ops/product_problem.h"

namespace tessera::graph {

/// A product between operands that lie in a program.
struct LinearCall {
  ProductKind product = ProductKind::forward;
  ops::Operand values = {};               ///< W, or dW
  ops::Operand x = {};                    ///< X or dX, in the weight's order
  ops::Operand y = {};                    ///< Y or dY
  uint32_t n = 0;                         ///< rows of the batch
  std::optional<ops::Operand> bias = {};  ///< 1 × m on hosts, m × 1 on tiles
  Activation activation = Activation::none;
  std::optional<ops::Operand> mask = {};  ///< of the shape of X: dX is 0 where it is not positive
  bool adds = false;                      ///< forward: to what is in Y
  /// Forward: x is images, and X what the window sees of them.
  std::optional<kernels::Window> window = {};
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

  /// Of a variable with its values.
  virtual ops::OperandLayout layout() const = 0;
  /// Types of the values that products read, and of the gradient.
  virtual Type type() const = 0;
  virtual Type gradient_type() const = 0;
  /// Types of X and Y.
  virtual Type activation_type() const = 0;
  /// Those of a product, which may differ.
  virtual Type activation_type_of(const ops::Builder&, const LinearCall&) const { return activation_type(); }
  /// Layouts of X and Y: rows or transposed, if they have no parts.
  virtual ValueLayout activations() const { return kTransposed; }
  /// Those of a product with `n` rows that has them in parts.
  virtual std::optional<PartedActivations> parted_activations(ProductKind /*product*/, uint32_t /*n*/) {
    return {};
  }
  /// Which elements of the matrix the stored ones are, where there is a formula for it.
  virtual std::optional<kernels::ElementOrder> order() const { return {}; }
  /// Whether gradients leave places unwritten, where the variable has to be 0.
  virtual bool gradient_has_gaps() const { return false; }
  /// Rows of each panel, if the values lie in panels from which a lookup takes rows.
  virtual std::optional<uint32_t> panel_rows() const { return {}; }
  /// Whether products take a mask.
  virtual bool takes_mask() const { return false; }
  /// Whether forward products take images and a window.
  virtual bool takes_windows() const { return false; }
  /// Whether products can add to what is in Y.
  virtual bool can_add() const { return false; }

  virtual program::StepId add(const ops::Builder& builder, const LinearCall& call) = 0;
  /// The gradient and the update in one superstep, without storing the gradient; none if there is no such
  /// form.
  virtual std::optional<program::StepId> add_updating(const ops::Builder&, const LinearCall&,
                                                      const LinearUpdate&) {
    return {};
  }

  /// Values in this form as a matrix in a layout of plain ones, and back. Throw UsageError for a sparse
  /// weight.
  virtual ops::Operand matrix_of(const ops::Builder& builder, const ops::Operand& stored,
                                 const ops::OperandLayout& wants, std::vector<program::StepId>& steps) const;
  virtual ops::Operand stored_of(const ops::Builder& builder, const ops::Operand& matrix,
                                 const ops::OperandLayout& has, std::vector<program::StepId>& steps) const;

  /// Converts values, row-major or the blocks of SparseMatrix::values, to stored ones, and back.
  virtual std::vector<float> store(std::span<const float> values) const = 0;
  virtual std::vector<float> load(std::span<const float> stored) const = 0;

  /// What a run has to bind besides the values.
  virtual std::vector<engine::Binding> bindings() { return {}; }
  /// The present pattern of a sparse weight.
  virtual Pattern pattern() const { return {}; }
  /// Of a weight with a capacity. Throws UsageError for another.
  virtual void set_pattern(const Pattern& pattern);
};

/// A weight for products with `n` rows, on the builder's machine. `name` is that of its parameter. If
/// `forward_only`, there are no gradients.
std::unique_ptr<LinearWeight> make_weight(const ops::Builder& builder, const TensorType& type,
                                          const std::string& name, uint32_t n, bool forward_only);

}  // namespace tessera::graph
