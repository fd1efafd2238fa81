// Plans of operations that partition a matrix, and operations in place.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/map/elementwise/codelet.h"
#include "ops/map/cast.h"
#include "ops/map/elementwise.h"
#include "ops/map/fill.h"
#include "ops/map/gather.h"
#include "ops/map/reduce.h"
#include "ops/run_operation.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

TEST(PlanTest, SmallWorkStaysOnOneThread) {
  const machine::Machine host = machine::host(4);
  EXPECT_EQ(plan(UnaryProblem{kernels::Unary::relu, Type::f32, 16, 16}, host).partition.tiles(), 1U);
  EXPECT_EQ(plan(CastProblem{Type::f32, Type::bf16, 8, 8}, host).partition.tiles(), 1U);
  EXPECT_EQ(plan(ReduceProblem{4, 64}, host).partition.tiles(), 1U);
}

TEST(PlanTest, LargeWorkUsesEveryThread) {
  const machine::Machine host = machine::host(4);
  EXPECT_EQ(plan(UnaryProblem{kernels::Unary::relu, Type::f32, 4096, 4096}, host).partition.tiles(), 4U);
  EXPECT_EQ(plan(ReduceProblem{8, 1 << 20}, host).partition.tiles(), 4U);
}

TEST(PlanTest, TilesWithTheirOwnMemoryShareTheWork) {
  const machine::Machine tiles = tessera::testing::toy_machine(4);
  EXPECT_EQ(plan(UnaryProblem{kernels::Unary::relu, Type::f32, 64, 64}, tiles).partition.tiles(), 4U);
}

TEST(PlanTest, EveryCandidateButTheChosenHasAReason) {
  const MapPlan made = plan(UnaryProblem{kernels::Unary::gelu, Type::f32, 64, 64}, machine::host(4));
  ASSERT_GT(made.candidates.size(), 1U);
  size_t accepted = 0;
  for (const PlanCandidate& candidate : made.candidates) {
    if (candidate.rejected.empty()) ++accepted;
    EXPECT_GE(candidate.total(), made.chosen.total());
    EXPECT_TRUE(test::says(to_string(made.candidates), candidate.partition));
  }
  EXPECT_EQ(accepted, 1U);
}

TEST(PlanTest, NoPartitionIsFasterThanTheChosenThoughSlowOnesAreNotPlaced) {
  const machine::Machine tiles = tessera::testing::toy_machine(4);
  const UnaryProblem problem{kernels::Unary::gelu, Type::f32, 64, 64};
  const MapPlan made = plan(problem, tiles);
  for (const auto& [row_parts, col_parts] : {std::pair{1U, 1U}, {2U, 1U}, {1U, 2U}, {4U, 1U}, {1U, 4U}}) {
    const MapPartition partition = partition_evenly(64, 64, row_parts, col_parts);
    program::Program program;
    const Builder builder(program, tiles);
    const PlanCandidate placed =
        predict(builder, partition, add_externals(builder, operation_of(problem), partition),
                [&](const Builder& scratch, const MapPlan& planned, std::span<const Operand> copies) {
                  return build(scratch, problem, planned, {copies.begin(), copies.end()});
                });
    EXPECT_LE(made.chosen.total(), placed.total());
    EXPECT_GT(placed.max_tile_bytes, 0U);
  }
  for (const PlanCandidate& candidate : made.candidates)
    EXPECT_TRUE(candidate.rejected.empty() || candidate.total() >= made.chosen.total());
}

TEST(PlanTest, WhatFitsNoTileSaysByHowMuch) {
  const machine::Machine tiny = tessera::testing::toy_machine(2, 4096);
  const std::string message = test::error_of([&] {
    plan(UnaryProblem{kernels::Unary::neg, Type::f32, 64, 64}, tiny);
  });
  EXPECT_TRUE(test::says(message, "of 64 × 64 elements does not fit toy: its smallest plan needs "));
  EXPECT_TRUE(test::says(message, " bytes on a tile and has 4096; use fewer elements"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(PlanTest, APartOfAProgramMayNotFit) {
  const machine::Machine tiny = tessera::testing::toy_machine(2, 4096);
  program::Program program;
  const Builder builder(program, tiny);
  const Operand x = builder.external("x", program::Role::inout, Type::f32, 64, 64);
  const MapPlan plan = ops::plan(builder, UnaryProblem{kernels::Unary::neg, Type::f32, 64, 64}, {x, x});
  EXPECT_FALSE(plan.chosen.rejected.empty());
  for (const PlanCandidate& candidate : plan.candidates)
    EXPECT_GE(candidate.max_tile_bytes, plan.chosen.max_tile_bytes);
}

/// Two operations of one program on some tiles of a machine, in place on given operands.
TEST(InPlaceTest, OperandsStayWhereTheyLie) {
  const machine::Machine machine = tessera::testing::toy_machine(9);
  constexpr uint32_t kRows = 40, kCols = 12;
  program::Program program;
  const Builder builder(program, machine, 3, 5);
  const Operand w = builder.external("W", program::Role::inout, Type::f32, kRows, kCols);
  const Operand dw = builder.external("dW", program::Role::input, Type::f32, kRows, kCols);
  const Operand decay = builder.external("decay", program::Role::input, Type::f32, 1, kCols);
  const BinaryProblem step{kernels::Binary::add_scaled, Type::f32, kRows, kCols, -0.5F};
  const BinaryProblem shrink{.op = kernels::Binary::mul, .rows = kRows, .cols = kCols, .b = Broadcast::row};
  const MapPlan plan = ops::plan(builder, step, {w, dw, w});
  EXPECT_FALSE(plan.partition.boxes.empty()) << to_string(plan.candidates);
  EXPECT_EQ(plan.chosen.seconds[program::Phase::exchange], 0);
  EXPECT_TRUE(test::says(to_string(plan.partition), "in place"));
  program.set_main(
      program.sequence({build(builder, step, plan, {w, dw, w}), add(builder, shrink, {w, decay, w})}));
  const auto executable = compiler::compile(program, machine);
  program::PhaseTimes step_cycles = executable->set_cycles.at(0);
  for (size_t i = 0; i < program::kPhases; ++i)
    EXPECT_NEAR(plan.chosen.seconds.at[i] * machine.clock_hz, step_cycles.at[i], 1e-9 * step_cycles.total());

  Array a = Array::random(Type::f32, kRows, kCols, false, 1),
        b = Array::random(Type::f32, kRows, kCols, true, 2);
  Array d = Array::random(Type::f32, 1, kCols, false, 3);
  const Array before = a;
  engine::Engine(executable)
      .run(std::vector<engine::Binding>{a.bind(w.variable), b.bind(dw.variable), d.bind(decay.variable)});
  expect_numbers(
      a, Type::f32, [&](uint32_t r, uint32_t c) { return (before.at(r, c) - 0.5 * b.at(r, c)) * d.at(0, c); },
      1e-5);
}

/// From rows of tiles to columns of tiles, which takes blocks, so that a tile needs few transfers.
TEST(InPlaceTest, NoPartitionIsFasterWhereBlocksAreTaken) {
  constexpr uint32_t kSize = 600;
  machine::Machine machine = machine::find("gc200").part(0, kSize);
  machine.exchange_transfer_cycles = 3;
  program::Program program;
  const Builder builder(program, machine);
  std::vector<program::MappedBox> columns;
  for (uint32_t i = 0; i < kSize; ++i) columns.push_back({{0, kSize, i, 1}, i});
  const std::vector<Operand> operands = {
      builder.external("x", program::Role::input, Type::f32, kSize, kSize,
                       program::map_rows_to_tiles(kSize, kSize)),
      builder.external("y", program::Role::output, Type::f32, kSize, kSize, std::move(columns))};
  const UnaryProblem problem{kernels::Unary::relu, Type::f32, kSize, kSize};
  const MapPlan made = plan(builder, problem, operands);
  for (const bool by_rows : {true, false}) {
    const PlanCandidate counted =
        predict(builder, partition_evenly(kSize, kSize, by_rows ? kSize : 1, by_rows ? 1 : kSize), operands,
                [&](const Builder& scratch, const MapPlan& planned, std::span<const Operand> copies) {
                  return build(scratch, problem, planned, {copies.begin(), copies.end()});
                });
    const bool fits = overflow_of(counted, machine, true).empty();
    EXPECT_TRUE(!fits || made.chosen.total() <= counted.total()) << to_string(made.candidates);
  }
}

TEST(InPlaceTest, BoxesOfVariablesAreOperands) {
  for (const machine::Machine& machine : {machine::host(2), tessera::testing::toy_machine(4)}) {
    program::Program program;
    const Builder builder(program, machine);
    const Operand all = builder.external("A", program::Role::inout, Type::f32, 30, 20);
    const Operand top{all.variable, {0, 12, 3, 14}}, bottom{all.variable, {15, 12, 3, 14}};
    GatherProblem reversal{Type::f32, 12, 14, {}};
    for (uint32_t i = 0; i < 12; ++i) reversal.rows.push_back(11 - i);
    const Operand turned = builder.temporary("reversed", Type::f32, 12, 14);
    program.set_main(program.sequence(
        {add(builder, reversal, {bottom, turned}),
         add(builder, BinaryProblem{kernels::Binary::add, Type::f32, 12, 14}, {top, turned, top})}));
    Array a = Array::random(Type::f32, 30, 20, false, 1);
    const Array before = a;
    engine::Engine(compiler::compile(program, machine))
        .run(std::vector<engine::Binding>{a.bind(all.variable)});
    expect_numbers(a, Type::f32, [&](uint32_t r, uint32_t c) {
      const bool is_inside = r < 12 && c >= 3 && c < 17;
      return before.at(r, c) + (is_inside ? before.at(26 - r, c) : 0);
    });
  }
}

TEST(InPlaceTest, SaysWhichOperandIsWrong) {
  program::Program program;
  const machine::Machine host = machine::host(1);
  const Builder builder(program, host);
  const Operand a = builder.temporary("a", Type::f32, 3, 4), row = builder.temporary("row", Type::f32, 1, 4);
  const BinaryProblem problem{kernels::Binary::add, Type::f32, 3, 4};
  const auto message = [&](const std::vector<Operand>& operands) {
    return test::error_of<UsageError>([&] { add(builder, problem, operands); });
  };
  EXPECT_TRUE(
      test::says(message({a, row, a}), "the operand b is 1 × 4 of f32; the operation needs 3 × 4 of f32"));
  EXPECT_TRUE(test::says(message({a, a}), "add takes 3 operands; there are 2"));
  EXPECT_USAGE_ERROR("the operand out is 3 × 4 of f32; the operation needs 1 × 4",
                     add(builder, GatherProblem{Type::f32, 3, 4, {0}}, {a, a}));
}

TEST(PlanTest, RejectsWhatItCannotDo) {
  const machine::Machine host = machine::host(1);
  const std::string type = test::error_of<UsageError>([&] {
    plan(UnaryProblem{kernels::Unary::neg, Type::u8, 2, 2}, host);
  });
  EXPECT_TRUE(test::says(type, "u8"));
  program::Program program;
  const Builder builder(program, host);
  const std::string row = test::error_of<UsageError>([&] {
    plan(builder, GatherProblem{Type::f32, 3, 2, {0, 2, 3}}, {});
  });
  EXPECT_TRUE(test::says(row, "row 3 of 3"));
  const auto fill = [&](Type filled, float value) {
    return test::error_of<UsageError>([&] { plan(FillProblem{filled, 1, 1, value}, host); });
  };
  EXPECT_TRUE(test::says(fill(Type::u8, 256), "u8 cannot hold 256"));
  EXPECT_TRUE(test::says(fill(Type::u32, 0.5F), "u32 cannot hold 0.5"));
}

}  // namespace
}  // namespace tessera::ops
