// Expressions of elementwise functions in one pass, on hosts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/map/expression/expression.h"
#include "ops/map/elementwise.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// Results are values of an expression, rows × cols, or the reductions of its columns by parts of the rows,
/// or of its rows by parts of the columns; inputs are f32, f16 or bf16. Each function rounds its results to
/// its type.
struct ExpressionProblem {
  struct Input {
    Type type = Type::f32;
    Broadcast broadcast = Broadcast::none;
  };

  kernels::Expression expression;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<Input> inputs = {};
  std::vector<Type> results = {};
  std::optional<kernels::ReduceOver> over = {};  ///< columns or rows, if they are reduced

  uint32_t result_rows() const { return over ? kernels::reduced_rows(*over, rows) : rows; }
  uint32_t result_cols() const { return over ? kernels::reduced_cols(*over, cols) : cols; }
};

/// Operands are the inputs, and then the results.
MapOperation operation_of(const ExpressionProblem& problem);

}  // namespace tessera::ops
