// Dropout, against its random stream.
#include "ops/map/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/map/fill.h"
#include "ops/run_operation.h"
#include "support/error_of.h"
#include "support/every_isa.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

constexpr float kKeep = 0.7F;
constexpr uint64_t kSeed = 0xFEDCBA9876543210;
constexpr uint32_t kOperation = 5;
constexpr uint32_t kStep = 1234567;
const base::RandomStream kStream(kSeed, kStep, kOperation);

Array step_of(uint32_t number) {
  Array step(Type::u32, 1, 1, false);
  step.set(0, 0, number);
  return step;
}

/// The mask of a matrix of ones, row by row.
std::vector<bool> mask_of(const Array& ones) {
  std::vector<bool> mask;
  for (uint32_t r = 0; r < ones.rows(); ++r)
    for (uint32_t c = 0; c < ones.cols(); ++c) mask.push_back(ones.at(r, c) != 0);
  return mask;
}

/// Runs a partition in a separate program, on a box of a matrix of ones.
std::vector<bool> mask_of(const machine::Machine& machine, uint32_t row_parts, uint32_t col_parts,
                          bool transposed) {
  constexpr uint32_t kRows = 61, kCols = 83;
  const uint32_t rows = transposed ? kCols : kRows, cols = transposed ? kRows : kCols;
  const DropoutProblem problem{Type::f32, rows, cols, kKeep, kSeed, kOperation, transposed};
  MapPlan plan;
  plan.partition = partition_evenly(rows, cols, row_parts, col_parts);
  program::Program program;
  const Builder builder(program, machine);
  const std::vector<Operand> operands = add_externals(builder, operation_of(problem), plan.partition);
  const auto executable = executable_of(builder, build(builder, problem, plan, operands));
  Array ones(Type::f32, rows, cols, false), step = step_of(kStep), y(Type::f32, rows, cols, false);
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t c = 0; c < cols; ++c) ones.set(r, c, 1);
  run_with(executable, operands, {&ones, &step, &y});
  std::vector<bool> mask;
  for (uint32_t r = 0; r < kRows; ++r)
    for (uint32_t c = 0; c < kCols; ++c) mask.push_back((transposed ? y.at(c, r) : y.at(r, c)) != 0);
  return mask;
}

TEST(DropoutMaskTest, IsTheSameHoweverItIsComputed) {
  const std::vector<bool> expected = mask_of(machine::host(1), 1, 1, false);
  test::on_every_isa([&] {
    for (const machine::Machine& machine : {machine::host(4), tessera::testing::toy_machine(12)})
      for (const bool transposed : {false, true})
        for (const auto& [row_parts, col_parts] : {std::pair{1U, 1U}, {4U, 1U}, {1U, 4U}, {2U, 2U}})
          EXPECT_EQ(mask_of(machine, row_parts, col_parts, transposed), expected)
              << machine.name << ", " << row_parts << " × " << col_parts << ", transposed " << transposed;
  });
}

TEST(DropoutMaskTest, KeepsItsFraction) {
  constexpr uint32_t kRows = 400, kCols = 1000;
  Array ones(Type::f32, kRows, kCols, false), y(Type::f32, kRows, kCols, false);
  run_operation(FillProblem{Type::f32, kRows, kCols, 1}, machine::host(2), {&ones});
  std::vector<bool> first;
  for (const float keep : {0.1F, 0.5F, 0.9F, 1.0F})
    for (const uint32_t number : {1U, 2U}) {
      SCOPED_TRACE(fmt::format("keep {}, step {}", keep, number));
      Array step = step_of(number);
      run_operation(DropoutProblem{Type::f32, kRows, kCols, keep, kSeed}, machine::host(2),
                    {&ones, &step, &y});
      const std::vector<bool> mask = mask_of(y);
      const auto kept = static_cast<double>(std::count(mask.begin(), mask.end(), true)) / (kRows * kCols);
      const auto wanted = static_cast<double>(keep);
      EXPECT_NEAR(kept, wanted, 5 * std::sqrt(wanted * (1 - wanted) / (kRows * kCols)));
      EXPECT_EQ(number == 2 && mask == first, number == 2 && keep == 1);
      first = mask;
    }
}

/// In place, and on a box of a variable, elements are numbered within the operand.
TEST(DropoutMaskTest, NumbersElementsOfItsOperand) {
  for (const machine::Machine& machine : {machine::host(2), tessera::testing::toy_machine(4)}) {
    SCOPED_TRACE(machine.name);
    program::Program program;
    const Builder builder(program, machine);
    const Operand all = builder.external("A", program::Role::inout, Type::f32, 30, 20);
    const Operand step = builder.external("step", program::Role::input, Type::u32, 1, 1);
    const Operand box{all.variable, {7, 12, 3, 14}};
    program.set_main(
        add(builder, DropoutProblem{Type::f32, 12, 14, kKeep, kSeed, kOperation}, {box, step, box}));
    Array a = Array::random(Type::f32, 30, 20, false, 1), number = step_of(kStep);
    const Array before = a;
    engine::Engine(compiler::compile(program, machine))
        .run(std::vector<engine::Binding>{a.bind(all.variable), number.bind(step.variable)});
    expect_numbers(a, Type::f32, [&](uint32_t r, uint32_t c) {
      if (r < 7 || r >= 19 || c < 3 || c >= 17) return before.at(r, c);
      const bool kept = kStream.uniform((r - 7) * 14 + (c - 3)) < kKeep;
      return kept ? before.at(r, c) / static_cast<double>(kKeep) : 0;
    });
  }
}

TEST(DropoutErrorTest, SaysWhatIsWrong) {
  const machine::Machine host = machine::host(1);
  const auto message = [&](const auto& problem) {
    return test::error_of<UsageError>([&] { plan(problem, host); });
  };
  EXPECT_TRUE(
      test::says(message(DropoutProblem{.keep = 0}), "probability 0: it must be above 0 and at most 1"));
  EXPECT_TRUE(test::says(message(DropoutProblem{.keep = NAN}), "above 0 and at most 1"));
}

}  // namespace
}  // namespace tessera::ops
