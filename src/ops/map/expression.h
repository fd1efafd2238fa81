// Expressions of elementwise functions in one pass, on hosts.
#pragma once

#include <vector>

#include "kernels/map/expression/expression.h"
#include "ops/map/elementwise.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// Results are values of an expression, rows × cols, or the reductions of its columns by parts of the rows,
/// kernels::reduced_rows() × cols; inputs are f32, f16 or bf16. Each function rounds its results to
/// its type.
struct ExpressionProblem {
  struct Input {
    Type type = Type::f32;
    Broadcast broadcast = Broadcast::none;
  };

  kernels::Expression expression;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<Input> inputs;
  std::vector<Type> results;
  bool is_reduced = false;
};

/// Operands are the inputs, and then the results.
MapOperation operation_of(const ExpressionProblem& problem);

}  // namespace tessera::ops
