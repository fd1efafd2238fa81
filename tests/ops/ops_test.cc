// Operations on a host and on tiles with their own memories, against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/map/elementwise/codelet.h"
#include "ops/map/cast.h"
#include "ops/map/elementwise.h"
#include "ops/map/fill.h"
#include "ops/map/gather.h"
#include "ops/map/reduce.h"
#include "ops/map_settings.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

/// Results also in the other order than operands.
std::vector<MapSetting> all_settings() {
  std::vector<MapSetting> all;
  for (MapSetting setting : map_settings("tiles_1", tessera::testing::toy_machine(1)))
    for (const bool column_major : {false, true}) {
      setting.results_column_major = column_major;
      all.push_back(setting);
      all.back().name += column_major ? "_col" : "_row";
    }
  return all;
}

class OperationTest : public MapTest {};

constexpr Type kFloatTypes[] = {Type::f32, Type::f16, Type::bf16};

constexpr kernels::Unary kUnary[] = {
#define TESSERA_LIST(op) kernels::Unary::op,
    TESSERA_UNARY_OPERATIONS(TESSERA_LIST)
#undef TESSERA_LIST
};
constexpr kernels::Binary kBinary[] = {
#define TESSERA_LIST(op) kernels::Binary::op,
    TESSERA_BINARY_OPERATIONS(TESSERA_LIST)
#undef TESSERA_LIST
};

constexpr double kPi = 3.14159265358979323846;
const double kRoot = std::sqrt(2 / kPi);  // of GELU's tanh form

double exact(kernels::Unary op, double factor, double x) {
  using kernels::Unary;
  switch (op) {
    case Unary::relu: return std::max(0.0, x);
    case Unary::gelu: return x * 0.5 * std::erfc(-x * std::sqrt(0.5));
    case Unary::gelu_tanh: return x / 2 * (1 + std::tanh(kRoot * (x + 0.044715 * x * x * x)));
    case Unary::silu: return x / (1 + std::exp(-x));
    case Unary::neg: return -x;
    case Unary::scale: return x * factor;
    case Unary::exp: return std::exp(x);
    case Unary::log: return std::log(x);
    case Unary::sqrt: return std::sqrt(x);
    case Unary::rsqrt: return 1 / std::sqrt(x);
    case Unary::reciprocal: return 1 / x;
    case Unary::tanh: return std::tanh(x);
    case Unary::sigmoid: return 1 / (1 + std::exp(-x));
    case Unary::erf: return std::erf(x);
    case Unary::sin: return std::sin(x);
    case Unary::cos: return std::cos(x);
    case Unary::square: return x * x;
    case Unary::abs: return std::abs(x);
    case Unary::offset: return x + factor;
  }
  return x;
}

double exact(kernels::Binary op, double factor, double a, double b) {
  using kernels::Binary;
  const double s = 1 / (1 + std::exp(-b));
  const double t = std::tanh(kRoot * (b + 0.044715 * b * b * b));
  switch (op) {
    case Binary::add: return a + b;
    case Binary::sub: return a - b;
    case Binary::mul: return a * b;
    case Binary::add_scaled: return a + factor * b;
    case Binary::div: return a / b;
    case Binary::maximum: return std::max(a, b);
    case Binary::minimum: return std::min(a, b);
    case Binary::equal: return a == b ? 1 : 0;
    case Binary::not_equal: return a != b ? 1 : 0;
    case Binary::less: return a < b ? 1 : 0;
    case Binary::less_equal: return a <= b ? 1 : 0;
    case Binary::relu_gradient: return b <= 0 ? 0 : a;
    case Binary::gelu_gradient:
      return a * (std::erfc(-b * std::sqrt(0.5)) / 2 + b * std::exp(-b * b / 2) / std::sqrt(2 * kPi));
    case Binary::gelu_tanh_gradient:
      return a * ((1 + t) / 2 + b / 2 * (1 - t * t) * kRoot * (1 + 3 * 0.044715 * b * b));
    case Binary::silu_gradient: return a * s * (1 + b * (1 - s));
    case Binary::tanh_gradient: return a * (1 - b * b);
    case Binary::sigmoid_gradient: return a * b * (1 - b);
  }
  return a;
}

// Numbers are below 4; the largest results are exp(4) and a · b².
const double kFunctionError = 256 * epsilon_of(Type::f32);
constexpr double kErfError = 8e-7;

TEST_P(OperationTest, Unary) {
  constexpr float kFactor = 1.7F;
  for (kernels::Unary op : kUnary)
    for (Type type : kFloatTypes) {
      SCOPED_TRACE(fmt::format("{} on {}", kernels::codelet_of(op).name, name_of(type)));
      Array x = random(type, 1);
      Array y = unset(type);
      run_operation(UnaryProblem{op, type, rows(), cols(), kFactor}, machine(), {&x, &y});
      const bool is_erf = op == kernels::Unary::gelu || op == kernels::Unary::erf;
      const double error = is_erf ? kErfError : kFunctionError;
      expect_numbers(
          y, type, [&](uint32_t r, uint32_t c) { return exact(op, kFactor, x.at(r, c)); }, error);
    }
}

TEST_P(OperationTest, Binary) {
  constexpr float kFactor = -0.75F;
  for (kernels::Binary op : kBinary)
    for (Type type : kFloatTypes) {
      SCOPED_TRACE(fmt::format("{} on {}", kernels::codelet_of(op).name, name_of(type)));
      Array a = random(type, 1);
      Array b = random(type, 2);
      // Equal numbers are rare among random ones.
      for (uint32_t r = 0; r < rows(); r += 2)
        for (uint32_t c = 0; c < cols(); c += 3) b.set(r, c, a.at(r, c));
      Array y = unset(type);
      run_operation(BinaryProblem{op, type, rows(), cols(), kFactor}, machine(), {&a, &b, &y});
      const double error = op == kernels::Binary::gelu_gradient ? 4 * kErfError : kFunctionError;
      expect_numbers(
          y, type, [&](uint32_t r, uint32_t c) { return exact(op, kFactor, a.at(r, c), b.at(r, c)); }, error);
    }
}

TEST_P(OperationTest, IntegersWrap) {
  for (kernels::Binary op : kBinary) {
    if (!kernels::takes_integers(op)) continue;
    SCOPED_TRACE(kernels::codelet_of(op).name);
    Array a = unset(Type::u32), b = unset(Type::u32, 1, cols());
    for (uint32_t c = 0; c < cols(); ++c) {
      b.set(0, c, 5 * (c % 3) + 2);
      for (uint32_t r = 0; r < rows(); ++r) a.set(r, c, r + 4294967290.0 * (c % 2));
    }
    Array y = unset(Type::u32);
    run_operation(BinaryProblem{op, Type::u32, rows(), cols(), 1, Broadcast::none, Broadcast::row}, machine(),
                  {&a, &b, &y});
    for (uint32_t r = 0; r < rows(); ++r)
      for (uint32_t c = 0; c < cols(); ++c) {
        const double modulus = 4294967296.0, exactly = exact(op, 1, a.at(r, c), b.at(0, c));
        ASSERT_EQ(y.at(r, c), std::fmod(std::fmod(exactly, modulus) + modulus, modulus)) << r << ", " << c;
      }
  }
}

TEST_P(OperationTest, Where) {
  for (Type type : kFloatTypes)
    for (Broadcast broadcast : {Broadcast::none, Broadcast::row, Broadcast::column, Broadcast::scalar}) {
      SCOPED_TRACE(fmt::format("{}, broadcast {}", name_of(type), static_cast<int>(broadcast)));
      const bool tall = broadcast == Broadcast::none || broadcast == Broadcast::column;
      const bool wide = broadcast == Broadcast::none || broadcast == Broadcast::row;
      Array condition = random(type, tall ? rows() : 1, wide ? cols() : 1, 1);
      for (uint32_t r = 0; r < (tall ? rows() : 1); ++r)
        for (uint32_t c = r % 2; c < (wide ? cols() : 1); c += 2) condition.set(r, c, 0);
      Array a = random(type, 2), b = random(type, 1, 1, 3), y = unset(type);
      run_operation(WhereProblem{type, rows(), cols(), broadcast, Broadcast::none, Broadcast::scalar},
                    machine(), {&condition, &a, &b, &y});
      for (uint32_t r = 0; r < rows(); ++r)
        for (uint32_t c = 0; c < cols(); ++c)
          ASSERT_EQ(y.at(r, c), condition.at(tall ? r : 0, wide ? c : 0) != 0 ? a.at(r, c) : b.at(0, 0));
    }
}

TEST_P(OperationTest, RowsColumnsAndScalarsStandForMatrices) {
  for (Broadcast broadcast : {Broadcast::row, Broadcast::column, Broadcast::scalar})
    for (const bool is_first : {false, true})
      for (Type type : {Type::f32, Type::f16}) {
        SCOPED_TRACE(fmt::format("broadcast {}, {} of {}", static_cast<int>(broadcast),
                                 is_first ? "first" : "second", name_of(type)));
        const uint32_t height = broadcast == Broadcast::column ? rows() : 1;
        const uint32_t width = broadcast == Broadcast::row ? cols() : 1;
        Array matrix = random(type, 1);
        Array vector = random(type, height, width, 2);
        Array y = unset(type);
        BinaryProblem problem{kernels::Binary::sub, type, rows(), cols()};
        (is_first ? problem.a : problem.b) = broadcast;
        run_operation(problem, machine(), {is_first ? &vector : &matrix, is_first ? &matrix : &vector, &y});
        expect_numbers(y, type, [&](uint32_t r, uint32_t c) {
          const double x = matrix.at(r, c), v = vector.at(height == 1 ? 0 : r, width == 1 ? 0 : c);
          return is_first ? v - x : x - v;
        });
      }
}

TEST_P(OperationTest, Cast) {
  for (Type from : kFloatTypes)
    for (Type to : kFloatTypes) {
      SCOPED_TRACE(fmt::format("{} to {}", name_of(from), name_of(to)));
      Array x = random(from, 1);
      Array y = unset(to);
      run_operation(CastProblem{from, to, rows(), cols()}, machine(), {&x, &y});
      expect_numbers(y, to, [&](uint32_t r, uint32_t c) { return x.at(r, c); });
    }
}

TEST_P(OperationTest, Reduce) {
  constexpr float kScale = 0.5F;
  for (Type from : {Type::f32, Type::f16})
    for (Type to : {Type::f32, Type::f16}) {
      SCOPED_TRACE(fmt::format("{} to {}", name_of(from), name_of(to)));
      Array x = random(from, 1);
      Array y = unset(to, 1, cols());
      run_operation(ReduceProblem{rows(), cols(), from, to, kScale}, machine(), {&x, &y});
      // Each addition rounds a sum of at most 4 per partial.
      const double sum_error = rows() * epsilon_of(Type::f32) * 4 * rows();
      expect_numbers(
          y, to,
          [&](uint32_t, uint32_t c) {
            double sum = 0;
            for (uint32_t p = 0; p < rows(); ++p) sum += x.at(p, c);
            return sum * kScale;
          },
          sum_error);
    }
}

TEST_P(OperationTest, Gather) {
  const uint32_t wanted = rows() == 0 ? 0 : 2 * rows() + 1;
  for (Type type : {Type::f32, Type::f16, Type::u8, Type::u32}) {
    SCOPED_TRACE(name_of(type));
    GatherProblem problem{type, rows(), cols(), {}};
    for (uint32_t i = 0; i < wanted; ++i) problem.rows.push_back(i * i / 2 % rows());
    Array source(type, rows(), cols(), GetParam().column_major);
    for (uint32_t r = 0; r < rows(); ++r)
      for (uint32_t c = 0; c < cols(); ++c) source.set(r, c, (r * 7 + c) % 251);
    Array y = unset(type, wanted, cols());
    run_operation(problem, machine(), {&source, &y});
    for (uint32_t r = 0; r < wanted; ++r)
      for (uint32_t c = 0; c < cols(); ++c) ASSERT_EQ(y.at(r, c), source.at(problem.rows[r], c));
  }
}

TEST_P(OperationTest, Copy) {
  for (Type type : {Type::f32, Type::bf16}) {
    SCOPED_TRACE(name_of(type));
    Array x = random(type, 1);
    Array y = unset(type);
    run_operation(CopyProblem{type, rows(), cols()}, machine(), {&x, &y});
    for (uint32_t r = 0; r < rows(); ++r)
      for (uint32_t c = 0; c < cols(); ++c) ASSERT_EQ(y.at(r, c), x.at(r, c));
  }
}

TEST_P(OperationTest, Fill) {
  for (Type type : {Type::f32, Type::f16, Type::bf16, Type::u8, Type::u32}) {
    SCOPED_TRACE(name_of(type));
    Array y = unset(type);
    run_operation(FillProblem{type, rows(), cols(), 17}, machine(), {&y});
    for (uint32_t r = 0; r < rows(); ++r)
      for (uint32_t c = 0; c < cols(); ++c) ASSERT_EQ(y.at(r, c), 17);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, OperationTest, ::testing::ValuesIn(all_settings()), name_of_setting);

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
    EXPECT_TRUE(test::says(to_string(made.candidates), candidate.partition));
  }
  EXPECT_EQ(accepted, 1U);
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
  const std::string row = test::error_of<UsageError>([&] {
    plan(GatherProblem{Type::f32, 3, 2, {0, 2, 3}}, host);
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
