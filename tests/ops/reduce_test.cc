// Reductions over an axis, against float64.
#include "ops/map/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/map/reduce/codelet.h"
#include "ops/map_settings.h"

namespace tessera::ops {
namespace {

using kernels::Reduction;

constexpr float kScale = 0.5F;

/// Of element `i` of the result.
double exact(const AxisReduceProblem& p, const Array& x, uint32_t i) {
  double result = p.op == Reduction::maximum ? -std::numeric_limits<double>::infinity() : 0;
  for (uint32_t k = 0; k < (p.over_rows ? p.rows : p.cols); ++k) {
    const double element = p.over_rows ? x.at(k, i) : x.at(i, k);
    switch (p.op) {
      case Reduction::sum: result += element; break;
      case Reduction::maximum: result = std::max(result, element); break;
      case Reduction::sum_of_squares: result += element * element; break;
    }
  }
  return result * static_cast<double>(p.scale);
}

/// Additions in FP32 of elements below 4.
double rounding_of(const AxisReduceProblem& p) {
  if (p.op == Reduction::maximum) return 0;
  const double terms = p.over_rows ? p.rows : p.cols;
  return terms * epsilon_of(Type::f32) * 16 * terms;
}

void expect_reduced(const AxisReduceProblem& p, const Array& x, const Array& y) {
  expect_numbers(
      y, p.to, [&](uint32_t r, uint32_t c) { return exact(p, x, p.over_rows ? c : r); }, rounding_of(p));
}

class AxisReduceTest : public MapTest {};

TEST_P(AxisReduceTest, AgreesWithFloat64) {
  constexpr std::pair<Type, Type> kTypes[] = {
      {Type::f32, Type::f32}, {Type::f16, Type::f16}, {Type::bf16, Type::f32}, {Type::f32, Type::bf16}};
  for (Reduction op : {Reduction::sum, Reduction::maximum, Reduction::sum_of_squares})
    for (const bool over_rows : {true, false})
      for (const auto& [from, to] : kTypes) {
        SCOPED_TRACE(fmt::format("{} over {}, {} to {}, seed 1", kernels::codelet_of(op).name,
                                 over_rows ? "rows" : "columns", name_of(from), name_of(to)));
        const AxisReduceProblem problem{op, rows(), cols(), over_rows, from, to, kScale};
        Array x = random(from, 1);
        Array y = unset(to, over_rows ? 1 : rows(), over_rows ? cols() : 1);
        run_operation(problem, machine(), {&x, &y});
        expect_reduced(problem, x, y);
      }
}

INSTANTIATE_TEST_SUITE_P(Settings, AxisReduceTest, ::testing::ValuesIn(map_settings()), name_of_setting);

/// Sums long enough to be split.
TEST(AxisReduceTest, TheNumberOfThreadsDoesNotChangeBits) {
  for (const bool over_rows : {true, false})
    for (const bool column_major : {false, true}) {
      const uint32_t rows = over_rows ? 5003 : 9, cols = over_rows ? 9 : 40007;
      SCOPED_TRACE(fmt::format("{} × {}, column-major {}, seed 2", rows, cols, column_major));
      Array x = Array::random(Type::f32, rows, cols, column_major, 2);
      std::vector<std::vector<double>> results;
      for (uint32_t threads : {1U, 2U, 5U}) {
        Array y(Type::f32, over_rows ? 1 : rows, over_rows ? cols : 1, false);
        const AxisReduceProblem problem{Reduction::sum, rows, cols, over_rows};
        run_operation(problem, machine::host(threads), {&x, &y});
        expect_reduced(problem, x, y);
        results.emplace_back();
        for (uint32_t i = 0; i < 9; ++i) results.back().push_back(y.at(over_rows ? 0 : i, over_rows ? i : 0));
      }
      EXPECT_EQ(results[0], results[1]);
      EXPECT_EQ(results[0], results[2]);
    }
}

TEST(AxisReduceTest, NaNReachesItsResultAlone) {
  constexpr uint32_t kRows = 40, kCols = 70;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (Reduction op : {Reduction::sum, Reduction::maximum, Reduction::sum_of_squares})
    for (const bool over_rows : {true, false}) {
      SCOPED_TRACE(fmt::format("{} over {}", kernels::codelet_of(op).name, over_rows ? "rows" : "columns"));
      Array x = Array::random(Type::f32, kRows, kCols, false, 3);
      Array y(Type::f32, over_rows ? 1 : kRows, over_rows ? kCols : 1, false);
      x.set(17, 33, NAN);
      x.set(5, 8, kInfinity);
      run_operation(AxisReduceProblem{op, kRows, kCols, over_rows}, machine::host(1), {&x, &y});
      for (uint32_t i = 0; i < (over_rows ? kCols : kRows); ++i) {
        const double found = y.at(over_rows ? 0 : i, over_rows ? i : 0);
        EXPECT_EQ(std::isnan(found), i == (over_rows ? 33 : 17)) << i;
        EXPECT_EQ(std::isinf(found), i == (over_rows ? 8 : 5)) << i;
      }
    }
}

}  // namespace
}  // namespace tessera::ops
