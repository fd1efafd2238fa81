// Operations that partition a matrix, on hosts and on tiles with their own memories: they have the results of
// their codelets' references for whole matrices, at the cost of the plan. Tests of networks check what
// codelets compute (tests/graph/cases_test.cc).
#include "ops/map/map.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/map/elementwise/codelet.h"
#include "ops/map/cast.h"
#include "ops/map/dropout.h"
#include "ops/map/elementwise.h"
#include "ops/map/fill.h"
#include "ops/map/gather.h"
#include "ops/map/optimizer.h"
#include "ops/map/reduce.h"
#include "ops/map/softmax.h"
#include "ops/map_settings.h"
#include "support/error_of.h"

namespace tessera::ops {
namespace {

using kernels::Binary;
using kernels::Unary;

constexpr Type kFloatTypes[] = {Type::f32, Type::f16, Type::bf16};
constexpr Broadcast kBroadcasts[] = {Broadcast::none, Broadcast::row, Broadcast::column, Broadcast::scalar};

// Numbers are below 4; the largest results are exp(4) and a · b².
const double kFunctionError = 256 * epsilon_of(Type::f32);

class MapOperationTest : public MapTest {
 protected:
  /// Tolerance of sums of `terms` terms in FP32.
  static double sum_error(double terms) { return terms * epsilon_of(Type::f32) * 16 * terms; }
};

TEST_P(MapOperationTest, Unary) {
  for (Type type : kFloatTypes) {
#define TESSERA_EXPECT(op) \
  expect_like_reference(operation_of(UnaryProblem{Unary::op, type, rows(), cols(), 1.7F}), kFunctionError);
    TESSERA_UNARY_OPERATIONS(TESSERA_EXPECT)
#undef TESSERA_EXPECT
  }
}

TEST_P(MapOperationTest, Binary) {
  for (Type type : {Type::f32, Type::f16, Type::bf16, Type::u32, Type::i32}) {
#define TESSERA_EXPECT(op)                                                                       \
  if (!is_integer(type) || kernels::takes_integers(Binary::op))                                  \
    expect_like_reference(operation_of(BinaryProblem{Binary::op, type, rows(), cols(), -0.75F}), \
                          kFunctionError);
    TESSERA_BINARY_OPERATIONS(TESSERA_EXPECT)
#undef TESSERA_EXPECT
  }
}

TEST_P(MapOperationTest, AddsValuesOf16BitsToFP32) {
  for (Type addend : kFloatTypes)
    expect_like_reference(
        operation_of(BinaryProblem{
            .op = Binary::add_scaled, .rows = rows(), .cols = cols(), .factor = -0.75F, .addend = addend}),
        kFunctionError);
}

TEST(MapOperations, OnlyAddToFP32ValuesOfAnotherType) {
  EXPECT_USAGE_ERROR(
      "only add_scaled takes two types",
      operation_of(BinaryProblem{.op = Binary::mul, .rows = 2, .cols = 2, .addend = Type::f16}));
  EXPECT_USAGE_ERROR(
      "and adds to f32",
      operation_of(BinaryProblem{
          .op = Binary::add_scaled, .type = Type::f16, .rows = 2, .cols = 2, .addend = Type::bf16}));
}

TEST_P(MapOperationTest, RowsColumnsAndScalarsStandForMatrices) {
  for (Broadcast broadcast : kBroadcasts)
    for (Type type : kFloatTypes) {
      BinaryProblem difference{Binary::sub, type, rows(), cols()};
      difference.a = broadcast;
      expect_like_reference(operation_of(difference));
      std::swap(difference.a, difference.b);
      expect_like_reference(operation_of(difference));
      expect_like_reference(
          operation_of(WhereProblem{type, rows(), cols(), broadcast, Broadcast::none, Broadcast::scalar}));
    }
}

TEST_P(MapOperationTest, CastsCopiesAndFills) {
  for (Type from : kFloatTypes)
    for (Type to : kFloatTypes) expect_like_reference(operation_of(CastProblem{from, to, rows(), cols()}));
  for (Type type : {Type::f32, Type::f16, Type::bf16, Type::u8, Type::u32}) {
    expect_like_reference(operation_of(CopyProblem{type, rows(), cols()}));
    expect_like_reference(operation_of(FillProblem{type, rows(), cols(), 17}));
  }
}

TEST_P(MapOperationTest, Reductions) {
  using kernels::Reduction;
  constexpr std::pair<Type, Type> kTypes[] = {
      {Type::f32, Type::f32}, {Type::f16, Type::f16}, {Type::bf16, Type::f32}, {Type::f32, Type::bf16}};
  for (const auto& [from, to] : kTypes) {
    expect_like_reference(operation_of(ReduceProblem{rows(), cols(), from, to, 0.5F}), sum_error(rows()));
    expect_like_reference(operation_of(NeighbourSumProblem{rows(), cols(), 3, from, to}), sum_error(3));
    for (Reduction op : {Reduction::sum, Reduction::maximum, Reduction::sum_of_squares})
      for (const bool over_rows : {true, false})
        expect_like_reference(operation_of(AxisReduceProblem{op, rows(), cols(), over_rows, from, to, 0.5F}),
                              sum_error(over_rows ? rows() : cols()));
  }
}

TEST_P(MapOperationTest, Softmax) {
  for (const bool in_rows : {true, false})
    for (Type type : kFloatTypes) {
      expect_like_reference(operation_of(SoftmaxProblem{rows(), cols(), in_rows, type}), kFunctionError);
      const uint32_t classes = in_rows ? rows() : cols(), columns = in_rows ? cols() : rows();
      if (classes == 0) continue;
      for (const auto& [gradient, weighted] : {std::pair(true, false), {false, false}, {true, true}})
        expect_like_reference(operation_of(SoftmaxCrossEntropyProblem{classes, columns, 0.25F, type, in_rows,
                                                                      gradient, weighted}),
                              2 * kFunctionError);
    }
}

TEST_P(MapOperationTest, Optimizers) {
  constexpr std::pair<Type, Type> kTypes[] = {
      {Type::f32, Type::f32}, {Type::f32, Type::f16}, {Type::bf16, Type::bf16}, {Type::f16, Type::f32}};
  for (const auto& [weight, gradient] : kTypes)
    for (const float decay : {0.0F, 0.0625F})
      for (const bool kind : {false, true}) {
        for (const float momentum : {0.0F, 0.875F})
          if (momentum != 0 || !kind)
            expect_like_reference(
                operation_of(SgdProblem{weight, gradient, rows(), cols(), momentum, decay, kind}),
                kFunctionError);
        expect_like_reference(
            operation_of(SgdProblem{weight, gradient, rows(), cols(), 0.875F, decay, false, kind}),
            kFunctionError);
        AdamProblem adam{weight, gradient, rows(), cols()};
        adam.decay = decay, adam.decoupled = kind, adam.bias_correction = decay == 0 || kind;
        expect_like_reference(operation_of(adam), kFunctionError, 0);  // second moments are not negative
        expect_like_reference(direction_of(adam), kFunctionError, 0);
      }
}

TEST_P(MapOperationTest, Dropout) {
  for (Type type : kFloatTypes)
    for (const bool transposed : {false, true})
      expect_like_reference(
          operation_of(DropoutProblem{type, rows(), cols(), 0.7F, 0xFEDCBA9876543210, 5, transposed}));
}

TEST_P(MapOperationTest, Gather) {
  const uint32_t wanted = rows() == 0 ? 0 : 2 * rows() + 1;
  for (Type type : {Type::f32, Type::f16, Type::u8, Type::u32}) {
    SCOPED_TRACE(name_of(type));
    GatherProblem problem{type, rows(), cols(), {}};
    for (uint32_t i = 0; i < wanted; ++i) problem.rows.push_back(i * i / 2 % rows());
    Array source(type, rows(), cols(), GetParam().column_major);
    for (uint32_t r = 0; r < rows(); ++r)
      for (uint32_t c = 0; c < cols(); ++c) source.set(r, c, (r * 7 + c) % 251);
    Array y = unset(type, wanted, cols());
    program::Program program;
    const Builder builder(program, machine());
    const std::vector<Operand> operands = {
        builder.external("source", program::Role::input, type, rows(), cols()),
        builder.external("out", program::Role::output, type, wanted, cols())};
    const MapPlan made = plan(builder, problem, operands);
    const auto executable = executable_of(builder, build(builder, problem, made, operands));
    expect_kept(made, *executable);
    run_with(executable, operands, {&source, &y});
    for (uint32_t r = 0; r < wanted; ++r)
      for (uint32_t c = 0; c < cols(); ++c) ASSERT_EQ(y.at(r, c), source.at(problem.rows[r], c));
  }
}

/// Two cores that write parts of the same rows write the same cache lines.
TEST(MapOperations, DivideRowsAmongCoresNotTheirColumns) {
  for (const uint32_t cols : {16U, 64U, 100U}) {
    const MapPlan made = plan(
        BinaryProblem{.op = Binary::mul, .rows = 4096, .cols = cols, .b = Broadcast::row}, machine::host(2));
    EXPECT_EQ(made.partition.row_parts, 2U) << to_string(made.candidates);
    EXPECT_EQ(made.partition.col_parts, 1U) << to_string(made.candidates);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, MapOperationTest, ::testing::ValuesIn(map_settings()), name_of_setting);

}  // namespace
}  // namespace tessera::ops
