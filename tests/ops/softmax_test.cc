// Softmax and cross-entropy at limits, and where they are computed.
#include "ops/map/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/run_operation.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

TEST(SoftmaxLimitsTest, LargeLogitsDoNotOverflow) {
  for (const bool over_rows : {true, false}) {
    Array x(Type::f32, 2, 2, false), y(Type::f32, 2, 2, false);
    x.set(0, 0, 3e38), x.set(0, 1, 3e38), x.set(1, 0, 3e38), x.set(1, 1, 3e38);
    run_operation(SoftmaxProblem{2, 2, over_rows}, machine::host(1), {&x, &y});
    for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(y.at(i / 2, i % 2), 0.5);
  }
}

/// A line with NaN, a line with −∞ as in a mask, and a label beyond the classes.
TEST(SoftmaxLimitsTest, NaNStaysInItsLine) {
  constexpr uint32_t kClasses = 21, kColumns = 40;
  for (const bool in_rows : {true, false}) {
    SCOPED_TRACE(fmt::format("classes in rows {}, seed 1", in_rows));
    const uint32_t rows = in_rows ? kClasses : kColumns, cols = in_rows ? kColumns : kClasses;
    Array x = Array::random(Type::f32, rows, cols, false, 1);
    const auto at = [&](const Array& a, uint32_t i, uint32_t j) { return in_rows ? a.at(i, j) : a.at(j, i); };
    const auto set = [&](Array& a, uint32_t i, uint32_t j, double value) {
      in_rows ? a.set(i, j, value) : a.set(j, i, value);
    };
    set(x, 4, 7, NAN);
    set(x, 9, 11, -INFINITY);
    Array y(Type::f32, rows, cols, false), gradient(Type::f32, rows, cols, false);
    Array labels(Type::u32, in_rows ? 1 : kColumns, in_rows ? kColumns : 1, false);
    for (uint32_t j = 0; j < kColumns; ++j) set(labels, 0, j, j == 30 ? kClasses : j % kClasses);
    Array loss(Type::f32, labels.rows(), labels.cols(), false);
    run_operation(SoftmaxProblem{rows, cols, in_rows}, machine::host(1), {&x, &y});
    SoftmaxCrossEntropyProblem problem{kClasses, kColumns};
    problem.classes_in_rows = in_rows;
    run_operation(problem, machine::host(1), {&x, &labels, &gradient, &loss});
    for (uint32_t j = 0; j < kColumns; ++j) {
      EXPECT_EQ(std::isnan(at(loss, 0, j)), j == 7 || j == 30) << j;
      for (uint32_t i = 0; i < kClasses; ++i) {
        EXPECT_EQ(std::isnan(at(y, i, j)), j == 7) << i << ", " << j;
        EXPECT_EQ(std::isnan(at(gradient, i, j)), j == 7 || j == 30) << i << ", " << j;
      }
    }
    EXPECT_EQ(at(y, 9, 11), 0);
  }
}

/// Results that lie in whole columns are computed there; others are brought to whole columns.
TEST(SoftmaxInPlaceTest, PartitionsWholeLines) {
  const machine::Machine machine = tessera::testing::toy_machine(5);
  constexpr uint32_t kRows = 12, kCols = 20;
  for (const bool whole : {true, false}) {
    SCOPED_TRACE(fmt::format("whole columns {}, seed 1", whole));
    program::Program program;
    const Builder builder(program, machine);
    std::vector<program::MappedBox> mapping;
    for (uint32_t tile = 0; tile < 5; ++tile)
      mapping.push_back(
          {whole ? program::Box{0, kRows, 4 * tile, 4} : program::Box{tile * 3, tile == 4 ? 0 : 3U, 0, kCols},
           tile});
    if (!whole) mapping.pop_back();
    const Operand x = builder.external("x", program::Role::inout, Type::f32, kRows, kCols, mapping);
    const SoftmaxProblem problem{kRows, kCols};
    const MapPlan plan = ops::plan(builder, problem, {x, x});
    EXPECT_EQ(plan.chosen.seconds[program::Phase::exchange] == 0, whole);
    program.set_main(build(builder, problem, plan, {x, x}));
    Array a = Array::random(Type::f32, kRows, kCols, false, 1);
    Array before = a, expected = a;
    run_operation(problem, machine::host(1), {&before, &expected});
    engine::Engine(compiler::compile(program, machine)).run(std::vector<engine::Binding>{a.bind(x.variable)});
    expect_numbers(
        a, Type::f32, [&](uint32_t r, uint32_t c) { return expected.at(r, c); }, 64 * epsilon_of(Type::f32));
  }
}

TEST(SoftmaxErrorTest, SaysWhatIsWrong) {
  EXPECT_USAGE_ERROR("at least one class", plan(SoftmaxCrossEntropyProblem{}, machine::host(1)));
}

}  // namespace
}  // namespace tessera::ops
