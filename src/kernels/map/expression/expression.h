// Expressions of elementwise functions, evaluated for a few elements after another, so that values between
// the functions stay in the L1 cache.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/map/elementwise/elementwise.h"
#include "kernels/map/reduce/axis.h"
#include "program/codelet.h"

namespace tessera::kernels {

inline constexpr size_t kMostExpressionInputs = 8;
inline constexpr size_t kMostExpressionResults = 3;
inline constexpr size_t kMostExpressionSteps = 12;

/// One function of an expression. Its operands are numbers of values: first the inputs, then the results of
/// the steps.
struct ExpressionStep {
  enum class Kind : uint8_t { none, unary, binary, where, cast };

  Kind kind = Kind::none;
  uint8_t function = 0;   ///< a Unary or a Binary
  Type type = Type::f32;  ///< of its result: f32, f16 or bf16, to which it is rounded
  std::array<uint8_t, 3> operands = {};
  float factor = 1;

  size_t operand_count() const;
};

/// A value of an expression that is a result, or of which each column or each row is reduced to one.
struct ExpressionResult {
  uint8_t value = 0;
  Reduction reduction = Reduction::sum;
  float scale = 1;
};

/// Steps and results, as parameters of codelets: the parameters of each step, and of each result.
struct Expression {
  std::vector<ExpressionStep> steps;
  std::vector<ExpressionResult> results;
};
std::vector<int64_t> params_of(const Expression& expression);
Expression expression_of(std::span<const int64_t> params, size_t results);

/// The results of an expression; the fields are its inputs and then its results, all of one shape, or inputs
/// that are a single row, column or number, which is broadcast. Results do not overlap inputs.
void evaluate(const Expression& expression, std::span<const program::FieldView> fields);

/// The columns or rows of values of an expression, to which inputs are broadcast, reduced by parts. For
/// columns, row i of the results is of the rows i · kPartRows and following; for rows, column i is of the
/// columns i · kPieceCols and following. The order of additions is the same as in apply_axis_reduction().
void evaluate_reduced(const Expression& expression, ReduceOver over,
                      std::span<const program::FieldView> fields);

/// Rows and columns of the results, for this number of rows or columns.
constexpr uint32_t reduced_rows(ReduceOver over, uint32_t rows) {
  return over == ReduceOver::columns ? (rows - 1) / kPartRows + 1 : rows;
}
constexpr uint32_t reduced_cols(ReduceOver over, uint32_t cols) {
  return over == ReduceOver::rows ? (cols - 1) / kPieceCols + 1 : cols;
}

}  // namespace tessera::kernels
