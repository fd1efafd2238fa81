// Attention of matrices in any layout, on any number of threads.
#include "ops/map/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernels/product/attention/codelet.h"
#include "run_operation.h"

namespace tessera::ops {
namespace {

/// The same elements in the layout of an operand.
Array laid(const Array& matrix, Type type, bool transposed) {
  Array array(type, transposed ? matrix.cols() : matrix.rows(), transposed ? matrix.rows() : matrix.cols(),
              false);
  for (uint32_t r = 0; r < matrix.rows(); ++r)
    for (uint32_t c = 0; c < matrix.cols(); ++c)
      transposed ? array.set(c, r, matrix.at(r, c)) : array.set(r, c, matrix.at(r, c));
  return array;
}

/// Some threads may have parts of several sequences, which the plan does not expect.
void run(const AttentionProblem& problem, uint32_t threads, const std::vector<Array*>& arrays) {
  const machine::Machine machine = machine::host(threads);
  program::Program program;
  const Builder builder(program, machine);
  const MapPlan made = plan(problem, machine);
  const std::vector<Operand> operands = add_externals(builder, operation_of(problem), made.partition);
  run_with(executable_of(builder, build(builder, problem, made, operands)), operands, arrays);
}

TEST(Attention, HasTheSameBitsInAnyLayoutOnAnyNumberOfThreads) {
  const std::vector<AttentionProblem> problems = {
      {.sequences = 3, .queries = 37, .keys = 37, .heads = 4, .kv_heads = 4, .size = 16, .value_size = 16},
      {.sequences = 2,
       .queries = 130,
       .keys = 101,
       .heads = 4,
       .kv_heads = 2,
       .size = 20,
       .value_size = 9,
       .right = 0},
      {.type = Type::f16,
       .sequences = 1,
       .queries = 50,
       .keys = 19,
       .heads = 2,
       .kv_heads = 1,
       .size = 7,
       .value_size = 33},
      {.sequences = 5, .queries = 1, .keys = 64, .heads = 1, .kv_heads = 1, .size = 1, .value_size = 1}};
  for (AttentionProblem p : problems) {
    SCOPED_TRACE(fmt::format("{} queries, seed 1", p.queries));
    const uint32_t queries = p.sequences * p.queries, keys = p.sequences * p.keys;
    const Array q = Array::random(p.type, queries, p.heads * p.size, false, 1);
    const Array k = Array::random(p.type, keys, p.kv_heads * p.size, false, 2);
    const Array v = Array::random(p.type, keys, p.kv_heads * p.value_size, false, 3);
    std::vector<double> expected;
    for (const uint32_t threads : {1U, 2U, 3U})
      for (uint32_t bits = 0; bits < 16; ++bits) {
        p.q_transposed = (bits & 1) != 0;
        p.k_transposed = (bits & 2) != 0;
        p.v_transposed = (bits & 4) != 0;
        p.y_transposed = (bits & 8) != 0;
        Array q_laid = laid(q, p.type, p.q_transposed), k_laid = laid(k, p.type, p.k_transposed),
              v_laid = laid(v, p.type, p.v_transposed), lse(Type::f32, queries, p.heads, false),
              y = laid(Array(p.type, queries, p.heads * p.value_size, false), p.type, p.y_transposed);
        run(p, threads, {&q_laid, &k_laid, &v_laid, &lse, &y});
        std::vector<double> found;
        for (uint32_t r = 0; r < queries; ++r)
          for (uint32_t c = 0; c < p.heads * p.value_size; ++c)
            found.push_back(p.y_transposed ? y.at(c, r) : y.at(r, c));
        if (expected.empty()) expected = found;
        ASSERT_EQ(found, expected) << threads << " threads, transposed " << bits;
      }
  }
}

/// A tile with rows of two sequences would need keys or queries of both.
TEST(Attention, HasNoTileWithRowsOfTwoSequences) {
  using kernels::AttentionRowsOf;
  constexpr uint32_t kTokens = 38;
  const AttentionProblem p{.sequences = 3,
                           .queries = kTokens,
                           .keys = kTokens,
                           .heads = 2,
                           .kv_heads = 2,
                           .size = 8,
                           .value_size = 8};
  const machine::Machine machine = machine::find("gc200").part(0, 56);
  const auto expect_apart = [&](const MapPartition& partition) {
    SCOPED_TRACE(to_string(partition));
    uint32_t elements = 0;
    for (program::TileId tile = 0; tile < partition.tiles(); ++tile) {
      const program::Box box = partition.box(tile);
      EXPECT_FALSE(box.empty()) << tile;
      EXPECT_EQ(box.row / kTokens, (box.row_end() - 1) / kTokens) << tile;
      elements += box.rows * box.cols;
    }
    EXPECT_EQ(elements, partition.rows * partition.cols);
    EXPECT_LE(partition.tiles(), machine.tiles);
  };
  expect_apart(plan(p, machine).partition);
  for (const AttentionRowsOf rows : {AttentionRowsOf::queries, AttentionRowsOf::keys})
    expect_apart(plan(AttentionGradientProblem{p, rows}, machine).partition);
}

/// Whether an operation has an operand, as input or output.
bool has_operand(const MapOperation& operation, std::string_view name) {
  return std::ranges::any_of(operation.operands,
                             [&](const MapOperand& operand) { return operand.name == name; });
}

/// A tile would need results of all queries of a sequence.
TEST(Attention, GradientsOfKeysTakeMeansInsteadOfResults) {
  using kernels::AttentionRowsOf;
  const AttentionProblem p{.queries = 8, .keys = 8, .size = 4, .value_size = 4};
  for (const AttentionRowsOf rows :
       {AttentionRowsOf::queries, AttentionRowsOf::sequences, AttentionRowsOf::keys}) {
    const MapOperation operation = operation_of(AttentionGradientProblem{p, rows});
    EXPECT_EQ(has_operand(operation, "y"), rows != AttentionRowsOf::keys);
    EXPECT_EQ(has_operand(operation, "means"), rows != AttentionRowsOf::sequences);
  }
}

}  // namespace
}  // namespace tessera::ops
