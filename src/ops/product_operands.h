// Operands of a product with a weight in a program.
#pragma once

#include <optional>

#include "ops/operand.h"

namespace tessera::ops {

/// Each product reads two of W, X and Y and writes the third: for dX it writes `x`, for dW `values`.
struct ProductOperands {
  Operand values;                        ///< values of W, or dW
  Operand x;                             ///< X or dX: k × n
  Operand y;                             ///< Y or dY: m × n
  std::optional<Operand> bias = {};      ///< one number per row of the result, f32
  std::optional<Operand> metadata = {};  ///< for a dynamic W: the positions of its blocks
  /// On hosts alpha and beta, 1 × 2 f32; none: alpha is 1, and so is beta if the problem uses it.
  std::optional<Operand> scalars = {};
};

/// A product in a program.
struct BuiltProduct {
  program::StepId step = program::kNoStep;
  program::VariableId bucket_metadata = 0;  ///< for a dynamic W: the metadata that a tile processes
};

}  // namespace tessera::ops
