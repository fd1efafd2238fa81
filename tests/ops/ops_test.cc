// Operations on a host and on tiles with their own memories, against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/map/cast.h"
#include "ops/map/elementwise.h"
#include "ops/map/gather.h"
#include "ops/map/reduce.h"
#include "ops/run_operation.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

struct Setting {
  std::string name;
  machine::Machine machine;
  uint32_t rows;
  uint32_t cols;
  bool first_column_major;
  bool second_column_major;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

std::vector<Setting> all_settings() {
  const std::vector<std::pair<std::string, machine::Machine>> machines = {
      {"host_1", machine::host(1)},
      {"host_3", machine::host(3)},
      {"tiles_1", tessera::testing::toy_machine(1)},
      {"tiles_7", tessera::testing::toy_machine(7)}};
  constexpr std::pair<uint32_t, uint32_t> kShapes[] = {{0, 0}, {0, 5}, {4, 0},  {1, 1},   {1, 37},
                                                       {9, 1}, {3, 5}, {7, 64}, {33, 129}};
  std::vector<Setting> settings;
  for (const auto& [name, machine] : machines)
    for (const auto& [rows, cols] : kShapes)
      for (int layouts = 0; layouts < 4; ++layouts)
        settings.push_back({fmt::format("{}_{}x{}_{}{}", name, rows, cols, layouts & 1 ? "col" : "row",
                                        layouts & 2 ? "col" : "row"),
                            machine, rows, cols, (layouts & 1) != 0, (layouts & 2) != 0});
  return settings;
}

class OperationTest : public ::testing::TestWithParam<Setting> {
 protected:
  const Setting& s() const { return GetParam(); }
  Array in(Type type, uint64_t seed) const { return in(type, s().rows, s().cols, seed); }
  Array in(Type type, uint32_t rows, uint32_t cols, uint64_t seed) const {
    return Array::random(type, rows, cols, s().first_column_major, seed);
  }
  Array out(Type type) const { return out(type, s().rows, s().cols); }
  Array out(Type type, uint32_t rows, uint32_t cols) const {
    return {type, rows, cols, s().second_column_major};
  }
};

constexpr Type kFloatTypes[] = {Type::f32, Type::f16, Type::bf16};

TEST_P(OperationTest, Unary) {
  constexpr float kFactor = 1.7F;
  const auto expected = [](kernels::Unary op, double x) {
    switch (op) {
      case kernels::Unary::relu: return std::max(0.0, x);
      case kernels::Unary::gelu: return x * 0.5 * std::erfc(-x * std::sqrt(0.5));
      case kernels::Unary::neg: return -x;
      case kernels::Unary::scale: return x * static_cast<double>(kFactor);
    }
    return x;
  };
  for (kernels::Unary op :
       {kernels::Unary::relu, kernels::Unary::gelu, kernels::Unary::neg, kernels::Unary::scale})
    for (Type type : kFloatTypes) {
      SCOPED_TRACE(fmt::format("operation {} on {}", static_cast<int>(op), name_of(type)));
      Array x = in(type, 1);
      Array y = out(type);
      run_operation(UnaryProblem{op, type, s().rows, s().cols, kFactor}, s().machine, {&x, &y});
      const double erf_error = op == kernels::Unary::gelu ? 8e-7 : 0;
      expect_numbers(
          y, type, [&](uint32_t r, uint32_t c) { return expected(op, x.at(r, c)); }, erf_error);
    }
}

TEST_P(OperationTest, Binary) {
  const auto expected = [](kernels::Binary op, double a, double b) {
    switch (op) {
      case kernels::Binary::add: return a + b;
      case kernels::Binary::sub: return a - b;
      case kernels::Binary::mul: return a * b;
    }
    return a;
  };
  for (kernels::Binary op : {kernels::Binary::add, kernels::Binary::sub, kernels::Binary::mul})
    for (Type type : kFloatTypes) {
      SCOPED_TRACE(fmt::format("operation {} on {}", static_cast<int>(op), name_of(type)));
      Array a = in(type, 1);
      Array b = in(type, 2);
      Array y = out(type);
      run_operation(BinaryProblem{op, type, s().rows, s().cols}, s().machine, {&a, &b, &y});
      expect_numbers(y, type, [&](uint32_t r, uint32_t c) { return expected(op, a.at(r, c), b.at(r, c)); });
    }
}

TEST_P(OperationTest, Cast) {
  for (Type from : kFloatTypes)
    for (Type to : kFloatTypes) {
      SCOPED_TRACE(fmt::format("{} to {}", name_of(from), name_of(to)));
      Array x = in(from, 1);
      Array y = out(to);
      run_operation(CastProblem{from, to, s().rows, s().cols}, s().machine, {&x, &y});
      expect_numbers(y, to, [&](uint32_t r, uint32_t c) { return x.at(r, c); });
    }
}

TEST_P(OperationTest, Reduce) {
  constexpr float kScale = 0.5F;
  for (Type from : {Type::f32, Type::f16})
    for (Type to : {Type::f32, Type::f16}) {
      SCOPED_TRACE(fmt::format("{} to {}", name_of(from), name_of(to)));
      Array x = in(from, 1);
      Array y = out(to, 1, s().cols);
      run_operation(ReduceProblem{s().rows, s().cols, from, to, kScale}, s().machine, {&x, &y});
      // Each addition rounds a sum of at most 4 per partial.
      const double sum_error = s().rows * epsilon_of(Type::f32) * 4 * s().rows;
      expect_numbers(
          y, to,
          [&](uint32_t, uint32_t c) {
            double sum = 0;
            for (uint32_t p = 0; p < s().rows; ++p) sum += x.at(p, c);
            return sum * kScale;
          },
          sum_error);
    }
}

TEST_P(OperationTest, Gather) {
  const uint32_t wanted = s().rows == 0 ? 0 : 2 * s().rows + 1;
  for (Type type : {Type::f32, Type::f16, Type::u8, Type::u32}) {
    SCOPED_TRACE(name_of(type));
    GatherProblem problem{type, s().rows, s().cols, {}};
    for (uint32_t i = 0; i < wanted; ++i) problem.rows.push_back(i * i / 2 % s().rows);
    Array source(type, s().rows, s().cols, s().first_column_major);
    for (uint32_t r = 0; r < s().rows; ++r)
      for (uint32_t c = 0; c < s().cols; ++c) source.set(r, c, (r * 7 + c) % 251);
    Array y = out(type, wanted, s().cols);
    run_operation(problem, s().machine, {&source, &y});
    for (uint32_t r = 0; r < wanted; ++r)
      for (uint32_t c = 0; c < s().cols; ++c) ASSERT_EQ(y.at(r, c), source.at(problem.rows[r], c));
  }
}

TEST_P(OperationTest, Copy) {
  for (Type type : {Type::f32, Type::bf16}) {
    SCOPED_TRACE(name_of(type));
    Array x = in(type, 1);
    Array y = out(type);
    run_operation(CopyProblem{type, s().rows, s().cols}, s().machine, {&x, &y});
    for (uint32_t r = 0; r < s().rows; ++r)
      for (uint32_t c = 0; c < s().cols; ++c) ASSERT_EQ(y.at(r, c), x.at(r, c));
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, OperationTest, ::testing::ValuesIn(all_settings()),
                         [](const auto& setting) { return setting.param.name; });

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
  GatherProblem reversal{Type::f32, 64, 64, {}};
  for (uint32_t i = 0; i < 64; ++i) reversal.rows.push_back(63 - i);
  EXPECT_EQ(plan(reversal, tiles).partition.tiles(), 4U);
}

TEST(PlanTest, EveryCandidateButTheChosenHasAReason) {
  const MapPlan made = plan(UnaryProblem{kernels::Unary::gelu, Type::f32, 64, 64}, machine::host(4));
  ASSERT_GT(made.candidates.size(), 1U);
  size_t accepted = 0;
  for (const PlanCandidate& candidate : made.candidates) {
    if (candidate.rejected.empty()) ++accepted;
    EXPECT_GE(candidate.total(), made.chosen.total());
    EXPECT_NE(to_string(made.candidates).find(candidate.partition), std::string::npos);
  }
  EXPECT_EQ(accepted, 1U);
}

TEST(PlanTest, WhatFitsNoTileSaysByHowMuch) {
  const machine::Machine tiny = tessera::testing::toy_machine(2, 4096);
  const std::string message = test::error_of([&] {
    plan(UnaryProblem{kernels::Unary::neg, Type::f32, 64, 64}, tiny);
  });
  EXPECT_TRUE(test::says(message, "no plan is feasible"));
  EXPECT_TRUE(test::says(message, "of 4096"));
}

TEST(PlanTest, RejectsWhatItCannotDo) {
  const machine::Machine host = machine::host(1);
  const std::string type = test::error_of<UsageError>([&] {
    plan(UnaryProblem{kernels::Unary::neg, Type::u8, 2, 2}, host);
  });
  EXPECT_TRUE(test::says(type, "u8"));
  const std::string row = test::error_of<UsageError>([&] {
    plan(GatherProblem{Type::f32, 3, 2, {0, 2, 3}}, host);
  });
  EXPECT_TRUE(test::says(row, "row 3 of 3"));
}

}  // namespace
}  // namespace tessera::ops
