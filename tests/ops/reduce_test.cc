// Reductions over an axis: what may change their bits, and where NaN goes.
#include "ops/map/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/map/reduce/codelet.h"
#include "ops/run_operation.h"

namespace tessera::ops {
namespace {

using kernels::Reduction;

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
