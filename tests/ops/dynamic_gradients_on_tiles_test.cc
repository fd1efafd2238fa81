// Gradients of dynamic products on tiled machines: every pattern correct with one program, in the buckets of
// the forward product, and at the predicted cost.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "ops/run_on_tiles.h"
#include "ops/sparse/static/static_layout.h"
#include "sparse/generate.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

constexpr Product kGradients[] = {Product::input_gradient, Product::sddmm};

/// All blocks in the first rows and columns: one partition's bucket, and many steps.
SparseMatrix cornered_matrix(uint32_t m, uint32_t k, uint32_t block_size, uint64_t blocks) {
  Pattern p{m, k, block_size, {0}, {}};
  uint32_t side = 1;
  while (uint64_t{side} * side < blocks) ++side;
  for (uint32_t r = 0; r < p.block_rows(); ++r) {
    for (uint32_t c = 0; r < side && c < std::min(side, p.block_cols()) && p.columns.size() < blocks; ++c)
      p.columns.push_back(c);
    p.row_begin.push_back(p.columns.size());
  }
  return {p, sparse::random_values(p, 5)};
}

/// Sets the pattern, runs, and compares with float64 and with the word given for the pattern.
void expect_right(Planned& product, const SparseMatrix& matrix, const ProductProblem& problem,
                  uint64_t seed = 3) {
  product.program.set_pattern(matrix.pattern);
  ProductRun run(matrix, problem, seed);
  const check::Verification v = run.run(product);
  EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
  const compiler::Estimate word =
      product.program.dynamic->estimate(*product.executable->program, product.executable->machine);
  const program::PhaseTimes& cycles = run.profile().cycles;
  for (size_t phase = 0; phase < program::kPhases; ++phase)
    EXPECT_NEAR(cycles.at[phase], word.cycles.at[phase], 1e-9 * cycles.total())
        << name_of(static_cast<program::Phase>(phase));
  const uint64_t bytes = product.executable->memory.max_tile_bytes;
  EXPECT_LE(bytes, word.memory.max_tile_bytes);
  EXPECT_GE(1.05 * static_cast<double>(bytes), static_cast<double>(word.memory.max_tile_bytes));
}

TEST(TiledDynamicGradients, OneProgramServesEveryPattern) {
  constexpr uint32_t kRows = 61;
  constexpr uint32_t kCols = 45;
  for (uint32_t tiles : {1U, 2U, 7U, 24U})
    for (uint32_t block_size : {1U, 3U, 4U, 16U})
      for (uint32_t n : {1U, 5U, 33U})
        for (const TiledNumbers& numbers : kNumbers)
          for (Product gradient : kGradients) {
            const SparseMatrix planned = random_matrix(kRows, kCols, block_size, 0.25);
            const uint64_t capacity = planned.pattern.blocks();
            const ProductProblem problem{.n = n,
                                         .type = numbers.operands,
                                         .partials = numbers.partials,
                                         .product = gradient,
                                         .capacity = capacity};
            Planned product = make(planned.pattern, problem, testing::toy_machine(tiles));
            SCOPED_TRACE(fmt::format("{}: {} tiles, b = {}, n = {}, {} {}: {}", name_of(gradient), tiles,
                                     block_size, n, name_of(numbers.operands), name_of(numbers.partials),
                                     product.plan.chosen.partition));
            expect_right(product, planned, problem);
            expect_right(product, random_matrix(kRows, kCols, block_size, 0), problem);
            expect_right(product, cornered_matrix(kRows, kCols, block_size, capacity), problem);
            expect_right(product, generate({PatternKind::power_law, kRows, kCols, 0.15, block_size, 1}),
                         problem);
            expect_right(product, generate({PatternKind::banded, kRows, kCols, 0.15, block_size, 1}),
                         problem);
          }
}

TEST(TiledDynamicGradients, AreRightForEveryGridAndRandomPatterns) {
  constexpr PatternKind kKinds[] = {PatternKind::random, PatternKind::banded, PatternKind::power_law};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    base::RandomSequence random{base::RandomStream(seed)};
    const uint32_t block_size = std::array{1U, 4U, 8U, 16U}[random.below(4)];
    const uint32_t m = 1 + random.below(150);
    const uint32_t k = 1 + random.below(150);
    const SparseMatrix matrix =
        generate({kKinds[random.below(3)], m, k, 0.02 + 0.3 * random.below(100) / 100, block_size, seed});
    const TiledNumbers& numbers = kNumbers[random.below(3)];
    const ProductProblem problem{.n = 1 + random.below(50),
                                 .type = numbers.operands,
                                 .partials = numbers.partials,
                                 .product = kGradients[random.below(2)],
                                 .capacity = matrix.pattern.blocks() + random.below(10)};
    const ForcedKnobs grid = {{"m_parts", 1 + random.below(std::min(4U, matrix.pattern.block_rows()))},
                              {"k_parts", 1 + random.below(std::min(4U, matrix.pattern.block_cols()))},
                              {"n_parts", 1 + random.below(std::min(3U, problem.n))}};
    const machine::Machine machine = random.below(2) == 0 ? testing::toy_machine(48, 1 << 20)
                                                          : testing::toy_machine_with_regions(48, 1 << 20);
    Planned product = make(matrix.pattern, problem, machine, grid);
    SCOPED_TRACE(fmt::format("seed {}: {} of {} × {}, n = {}, b = {}, {} {}: {}", seed,
                             name_of(problem.product), m, k, problem.n, block_size, name_of(problem.type),
                             name_of(problem.partials), product.plan.chosen.partition));
    expect_right(product, matrix, problem, seed);
  }
}

/// One encoding serves the three products of a training step.
TEST(TiledDynamicGradients, TakeTheForwardProductsBuckets) {
  const machine::Machine m = testing::toy_machine(24);
  const Pattern pattern = random_matrix(96, 80, 4, 0.2).pattern;
  ProductProblem problem{.n = 12, .capacity = pattern.blocks()};
  const Planned forward = make(pattern, problem, m);
  for (Product gradient : kGradients) {
    problem.product = gradient;
    const Planned product = make(pattern, problem, m, {}, &forward.plan);
    EXPECT_EQ(product.plan.partition, forward.plan.partition);
    EXPECT_EQ(product.program.dynamic->encoding.metadata, forward.program.dynamic->encoding.metadata);
    EXPECT_EQ(product.program.block_order, forward.program.block_order);
    const auto boxes_of_values = [](const Planned& p) {
      return boxes_of(p.executable->program->variable(p.program.variables.values).mapping);
    };
    EXPECT_EQ(boxes_of_values(product), boxes_of_values(forward));
  }
}

TEST(TiledDynamicGradients, AreRightOnBow) {
  const machine::Machine bow = machine::find("bow");
  for (uint32_t block_size : {1U, 4U, 16U})
    for (Product gradient : kGradients) {
      const SparseMatrix matrix = random_matrix(512, 768, block_size, 1.0 / 16);
      const ProductProblem problem{.n = 96,
                                   .type = Type::f16,
                                   .partials = Type::f32,
                                   .product = gradient,
                                   .capacity = matrix.pattern.blocks()};
      Planned product = make(matrix.pattern, problem, bow);
      SCOPED_TRACE(
          fmt::format("{}, b = {}: {}", name_of(gradient), block_size, product.plan.chosen.partition));
      expect_right(product, matrix, problem);
      expect_right(product, generate({PatternKind::power_law, 512, 768, 1.0 / 20, block_size, 2}), problem);
    }
}

}  // namespace
}  // namespace tessera::ops
