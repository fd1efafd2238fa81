#include <algorithm>
#include <array>
#include <utility>

#include "kernels/common/element.h"
#include "kernels/map/expression/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using Kind = ExpressionStep::Kind;

ExpressionStep step(Unary op, Type type, size_t x, float factor = 1) {
  return {Kind::unary, static_cast<uint8_t>(op), type, {static_cast<uint8_t>(x)}, factor};
}
ExpressionStep step(Binary op, Type type, size_t a, size_t b) {
  return {Kind::binary, static_cast<uint8_t>(op), type, {static_cast<uint8_t>(a), static_cast<uint8_t>(b)}};
}

/// An expression of all inputs, with each kind of step; results are the last values.
Expression sample_expression(size_t inputs, size_t results, Type type) {
  Expression expression;
  std::vector<ExpressionStep>& steps = expression.steps;
  steps = {step(Unary::offset, type, 0, 0.5F), step(Binary::maximum, type, inputs, 0)};
  for (size_t i = 1; i < inputs; ++i)
    steps.push_back(step(i % 2 == 0 ? Binary::add : Binary::mul, type, inputs + steps.size() - 1, i));
  steps.push_back({Kind::cast, 0, Type::f32, {static_cast<uint8_t>(inputs + steps.size() - 1)}});
  const auto last = static_cast<uint8_t>(inputs + steps.size() - 1);
  steps.push_back({Kind::where, 0, Type::f32, {last, last, last}});
  constexpr std::array kReductions = {Reduction::sum_of_squares, Reduction::maximum, Reduction::sum};
  for (size_t r = 0; r < results; ++r)
    expression.results.push_back(
        {static_cast<uint8_t>(inputs + steps.size() - 1 - r), kReductions.at(r), r == 0 ? 0.25F : 1.0F});
  return expression;
}

/// The first input is whole; of the others some are rows, columns or numbers. Reductions are of columns, or
/// of rows.
template <size_t inputs, size_t results, bool is_reduced, Type type, ReduceOver over = ReduceOver::columns>
Sample expression_sample(uint32_t scale, uint64_t seed) {
  constexpr bool is_long = is_reduced && over == ReduceOver::rows;
  const uint32_t rows = std::max(1U, is_reduced && !is_long ? 600 * scale : 5 * scale);
  const uint32_t cols = std::max(1U, is_long ? 1'000 * scale : 37 * scale);
  const Expression expression = sample_expression(inputs, results, type);
  Sample sample(expression_codelet(inputs, results, is_reduced));
  for (size_t i = 0; i < inputs; ++i) {
    const bool is_row = i % 4 == 1 || i == 5, is_column = i % 4 == 3 || i == 5;
    sample.random(type, is_row ? 1 : rows, is_column ? 1 : cols, seed + i, 2, !is_reduced);
  }
  for (const ExpressionResult& result : expression.results) {
    const size_t step = result.value - inputs;
    sample.unset(is_reduced ? Type::f32 : expression.steps[step].type,
                 is_reduced ? reduced_rows(over, rows) : rows, is_reduced ? reduced_cols(over, cols) : cols);
  }
  for (const int64_t param : params_of(expression)) sample.param(param);
  if (is_reduced) sample.param(static_cast<int64_t>(over));
  // Sums of columns are added in the same order, but from fused products; sums of rows in another order.
  if (is_long)
    sample.tolerance({kPieceCols * epsilon_of(Type::f32), 64 * kPieceCols * epsilon_of(Type::f32)});
  else if (is_reduced)
    sample.tolerance({4 * epsilon_of(Type::f32), 16 * kPartRows * epsilon_of(Type::f32)});
  return sample;
}

template <size_t inputs, size_t results, bool is_reduced>
constexpr NamedSample kSamples[] = {{"f32", expression_sample<inputs, results, is_reduced, Type::f32>},
                                    {"f16", expression_sample<inputs, results, is_reduced, Type::f16>},
                                    {"bf16", expression_sample<inputs, results, is_reduced, Type::bf16>}};
template <size_t inputs, size_t results>
constexpr NamedSample kReducedSamples[] = {
    kSamples<inputs, results, true>[0],
    kSamples<inputs, results, true>[1],
    kSamples<inputs, results, true>[2],
    { "rows-f32", expression_sample<inputs, results, true, Type::f32, ReduceOver::rows> },
    {"rows-bf16", expression_sample<inputs, results, true, Type::bf16, ReduceOver::rows>}};

constexpr size_t kOfEachKind = kMostExpressionInputs * kMostExpressionResults;

template <size_t... index>
std::array<CodeletSamples, sizeof...(index)> samples_of_all(std::index_sequence<index...>) {
  const auto of = []<size_t i>() {
    constexpr size_t inputs = i % kOfEachKind / kMostExpressionResults + 1,
                     results = i % kMostExpressionResults + 1;
    constexpr bool is_reduced = i >= kOfEachKind;
    const program::Codelet& codelet = expression_codelet(inputs, results, is_reduced);
    if constexpr (is_reduced)
      return CodeletSamples{codelet, kReducedSamples<inputs, results>};
    else
      return CodeletSamples{codelet, kSamples<inputs, results, false>};
  };
  return {of.template operator()<index>()...};
}

}  // namespace

std::span<const CodeletSamples> expression_samples() {
  static const auto kAll = samples_of_all(std::make_index_sequence<2 * kOfEachKind>());
  return kAll;
}

}  // namespace tessera::kernels
