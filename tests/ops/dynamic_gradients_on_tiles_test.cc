// Gradients of dynamic products on tiled machines: every pattern correct with one program, in the buckets of
// the forward product, and at the predicted cost.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "ops/dynamic_on_tiles.h"
#include "ops/sparse/static/static_layout.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

constexpr Product kGradients[] = {Product::input_gradient, Product::sddmm};

TEST(TiledDynamicGradients, OneProgramServesEveryPattern) {
  constexpr uint32_t kRows = 61;
  constexpr uint32_t kCols = 45;
  for (uint32_t tiles : {1U, 2U, 7U, 24U})
    for (uint32_t block_size : {1U, 3U, 4U, 16U})
      for (uint32_t n : {1U, 5U, 33U})
        for (const TiledNumbers& numbers : kNumbers)
          for (Product gradient : kGradients) {
            const SparseMatrix first = random_matrix(kRows, kCols, block_size, 0.25);
            const uint64_t capacity = first.pattern.blocks();
            const ProductProblem problem{.n = n,
                                         .type = numbers.operands,
                                         .partials = numbers.partials,
                                         .product = gradient,
                                         .capacity = capacity};
            bound::Product product(first, problem, testing::toy_machine(tiles));
            SCOPED_TRACE(fmt::format("{}: {} tiles, b = {}, n = {}, {} {}: {}", name_of(gradient), tiles,
                                     block_size, n, name_of(numbers.operands), name_of(numbers.partials),
                                     product.chosen().partition));
            expect_right(product, first);
            expect_right(product, random_matrix(kRows, kCols, block_size, 0));
            expect_right(product, cornered_matrix(kRows, kCols, block_size, capacity));
            expect_right(product, generate({PatternKind::power_law, kRows, kCols, 0.15, block_size, 1}));
            expect_right(product, generate({PatternKind::banded, kRows, kCols, 0.15, block_size, 1}));
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
    bound::Product product(matrix, problem, machine, grid);
    SCOPED_TRACE(fmt::format("seed {}: {} of {} × {}, n = {}, b = {}, {} {}: {}", seed,
                             name_of(problem.product), m, k, problem.n, block_size, name_of(problem.type),
                             name_of(problem.partials), product.chosen().partition));
    expect_right(product, matrix, seed);
  }
}

/// One encoding serves the three products of a training step.
TEST(TiledDynamicGradients, TakeTheForwardProductsBuckets) {
  const machine::Machine m = testing::toy_machine(24);
  const Pattern pattern = random_matrix(96, 80, 4, 0.2).pattern;
  ProductProblem problem{.n = 12, .capacity = pattern.blocks()};
  const bound::Product forward = planned(pattern, problem, m);
  for (Product gradient : kGradients) {
    problem.product = gradient;
    const bound::Product product = planned(pattern, problem, m, {}, &forward.tile_plan());
    EXPECT_EQ(product.tile_plan().partition, forward.tile_plan().partition);
    EXPECT_EQ(product.tile_program().dynamic->encoding.metadata,
              forward.tile_program().dynamic->encoding.metadata);
    EXPECT_EQ(product.tile_program().block_order, forward.tile_program().block_order);
    const auto boxes_of_values = [](const bound::Product& p) {
      return boxes_of(p.executable().program->variable(p.tile_program().operands.values.variable).mapping);
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
      bound::Product product(matrix, problem, bow);
      SCOPED_TRACE(fmt::format("{}, b = {}: {}", name_of(gradient), block_size, product.chosen().partition));
      expect_right(product, matrix);
      expect_right(product, generate({PatternKind::power_law, 512, 768, 1.0 / 20, block_size, 2}));
    }
}

}  // namespace
}  // namespace tessera::ops
