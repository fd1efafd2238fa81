// Gradients of products on tiled machines: correct, as planned, and with W where the forward product has it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "ops/run_on_tiles.h"
#include "ops/sparse/static/static_layout.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

constexpr Product kGradients[] = {Product::input_gradient, Product::sddmm};

ProductProblem problem_of(Product product, uint32_t n, const TiledNumbers& numbers = {}) {
  return {.n = n, .type = numbers.operands, .partials = numbers.partials, .product = product};
}

TEST(TiledGradients, AreRightOnMachinesOfAnyNumberOfTiles) {
  for (uint32_t tiles : {1U, 2U, 3U, 7U, 16U})
    for (uint32_t block_size : {1U, 3U, 4U, 8U, 16U, 32U})
      for (uint32_t n : {1U, 5U, 33U})
        for (const TiledNumbers& numbers : kNumbers)
          for (Product product : kGradients)
            for (bool dense : {false, true}) {
              SCOPED_TRACE(fmt::format("{}: {} tiles, b = {}, n = {}, {} {}, dense {}", name_of(product),
                                       tiles, block_size, n, name_of(numbers.operands),
                                       name_of(numbers.partials), dense));
              ProductProblem problem = problem_of(product, n, numbers);
              problem.dense = dense;
              const check::Verification v =
                  run(random_matrix(61, 45, block_size), problem, testing::toy_machine(tiles));
              EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
            }
}

/// Every pair of partitions: of the forward product, which determines the layout of W, and of the gradient.
TEST(TiledGradients, TakeWAsAnyForwardProductHasIt) {
  const machine::Machine m = testing::toy_machine(24);
  const ForcedKnobs partitions[] = {{{"col_parts", 1}, {"bands", 1}, {"band_tiles", 1}},
                                    {{"col_parts", 1}, {"bands", 3}, {"band_tiles", 4}},
                                    {{"col_parts", 3}, {"bands", 2}, {"band_tiles", 4}},
                                    {{"col_parts", 2}, {"bands", 5}, {"band_tiles", 1}}};
  for (uint32_t block_size : {1U, 4U, 16U}) {
    const SparseMatrix matrix = random_matrix(61, 45, block_size);
    for (const ForcedKnobs& forward_partition : partitions) {
      const TileProductPlan forward =
          plan_tile_product(matrix.pattern, problem_of(Product::forward, 9), m, forward_partition);
      for (const ForcedKnobs& partition : partitions)
        for (Product product : kGradients) {
          SCOPED_TRACE(
              fmt::format("b = {}, {} of {}", block_size, name_of(product), forward.chosen.partition));
          const ProductProblem problem = problem_of(product, 9);
          bound::Product gradient(matrix, problem, m, partition, &forward);
          EXPECT_EQ(gradient.tile_program().block_order, forward.layouts.values.blocks);
          EXPECT_TRUE(ProductRun(matrix, problem).run(gradient).verified);
        }
    }
  }
}

TEST(TiledGradients, StoreTheValuesOfWOnce) {
  const machine::Machine m = testing::toy_machine(16);
  const Pattern pattern = random_matrix(64, 48, 4).pattern;
  const bound::Product forward = planned(pattern, problem_of(Product::forward, 8), m);
  for (Product product : kGradients) {
    const bound::Product gradient = planned(pattern, problem_of(product, 8), m, {}, &forward.tile_plan());
    const auto values = [](const bound::Product& p) {
      return p.executable().program->variable(p.tile_program().operands.values.variable);
    };
    ASSERT_EQ(values(gradient).mapping.size(), values(forward).mapping.size());
    for (size_t i = 0; i < values(forward).mapping.size(); ++i) {
      EXPECT_EQ(values(gradient).mapping[i].box, values(forward).mapping[i].box);
      EXPECT_EQ(values(gradient).mapping[i].tile, values(forward).mapping[i].tile);
    }
    size_t inputs_of_w = 0;
    for (const program::Variable& v : gradient.executable().program->variables())
      if (v.role == program::Role::input && v.cols == 16 && v.rows == pattern.blocks()) ++inputs_of_w;
    EXPECT_EQ(inputs_of_w, product == Product::input_gradient ? 1U : 0U);
  }
}

/// An SDDMM with the forward product's own partition sends nothing.
TEST(TiledGradients, BlocksStayWhereTheyAreComputed) {
  const machine::Machine m = testing::toy_machine(12);
  const Pattern pattern = random_matrix(64, 48, 4).pattern;
  const ForcedKnobs partition = {{"col_parts", 1}, {"bands", 3}, {"band_tiles", 4}};
  const TileProductPlan forward = plan_tile_product(pattern, problem_of(Product::forward, 8), m, partition);
  const bound::Product gradient = planned(pattern, problem_of(Product::sddmm, 8), m, partition, &forward);
  EXPECT_EQ(gradient.executable().program->copy_sets().size(), 1U);
  EXPECT_EQ(gradient.executable().program->compute_sets().size(), 1U);
}

TEST(TiledGradients, TakeEmptyShapesAndSingleElements) {
  for (const auto& [m, k, n] :
       {std::array{0U, 5U, 3U}, {5U, 0U, 3U}, {5U, 4U, 0U}, {1U, 1U, 1U}, {1U, 40U, 1U}, {40U, 1U, 7U}})
    for (uint32_t block_size : {1U, 8U})
      for (double density : {0.5, 0.0})
        for (Product product : kGradients)
          for (bool dense : {false, true}) {
            SCOPED_TRACE(fmt::format("{}: {} × {} × {}, b = {}, dense {}", name_of(product), m, k, n,
                                     block_size, dense));
            ProductProblem problem = problem_of(product, n);
            problem.dense = dense;
            EXPECT_TRUE(
                run(random_matrix(m, k, block_size, density), problem, testing::toy_machine(4)).verified);
          }
}

TEST(TiledGradients, AreRightForRandomShapesPatternsAndMachines) {
  constexpr PatternKind kKinds[] = {PatternKind::random, PatternKind::banded, PatternKind::power_law};
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    base::RandomSequence random{base::RandomStream(seed)};
    const uint32_t block_size = std::array{1U, 4U, 8U, 16U}[random.below(4)];
    const uint32_t m = 1 + random.below(200);
    const uint32_t k = 1 + random.below(200);
    const double density = 0.01 + 0.5 * random.below(100) / 100;
    const SparseMatrix matrix = generate({kKinds[random.below(3)], m, k, density, block_size, seed});
    const uint32_t tiles = 1 + random.below(40);
    const machine::Machine machine = random.below(2) == 0 ? testing::toy_machine(tiles, 1 << 20)
                                                          : testing::toy_machine_with_regions(tiles, 1 << 20);
    ProductProblem problem =
        problem_of(kGradients[random.below(2)], 1 + random.below(70), kNumbers[random.below(3)]);
    problem.dense = random.below(4) == 0;
    SCOPED_TRACE(fmt::format("seed {}: {} of {} × {}, n = {}, b = {}, {} {}, {} tiles, dense {}", seed,
                             name_of(problem.product), m, k, problem.n, block_size, name_of(problem.type),
                             name_of(problem.partials), tiles, problem.dense));
    bound::Product product(matrix, problem, machine);
    const check::Verification v = ProductRun(matrix, problem, seed).run(product);
    EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
    expect_kept(product);
  }
}

TEST(TiledGradients, KeepTheirWord) {
  for (uint32_t tiles : {1U, 3U, 7U, 16U})
    for (uint32_t block_size : {1U, 4U})
      for (const TiledNumbers& numbers : kNumbers)
        for (uint32_t n : {1U, 20U, 65U})
          for (Product product : kGradients)
            for (bool dense : {false, true}) {
              SCOPED_TRACE(fmt::format("{}: {} tiles, b = {}, {}, n = {}, dense {}", name_of(product), tiles,
                                       block_size, name_of(numbers.operands), n, dense));
              const machine::Machine m = testing::toy_machine(tiles);
              ProductProblem problem = problem_of(product, n, numbers);
              problem.dense = dense;
              expect_kept(planned(random_matrix(61, 45, block_size).pattern, problem, m));
            }
}

TEST(TiledGradients, KeepTheirWordAtRealSize) {
  const machine::Machine bow = machine::find("bow");
  const Pattern blocks = random_matrix(1024, 2048, 16, 1.0 / 8).pattern;
  const Pattern elements = random_matrix(1024, 1024, 1, 1.0 / 16).pattern;
  for (Product product : kGradients)
    for (uint32_t n : {4U, 64U, 512U}) {
      SCOPED_TRACE(fmt::format("{}, n = {}", name_of(product), n));
      ProductProblem problem = problem_of(product, n, {Type::f16, Type::f16});
      expect_kept(planned(blocks, problem, bow));
      expect_kept(planned(elements, problem, bow));
      problem.dense = true;
      expect_kept(planned(blocks, problem, bow));
    }
}

TEST(TiledGradients, AreRightOnBow) {
  const machine::Machine bow = machine::find("bow");
  for (uint32_t block_size : {1U, 4U, 8U, 16U})
    for (Product product : kGradients)
      for (const TiledNumbers& numbers : kNumbers) {
        SCOPED_TRACE(fmt::format("{}, b = {}, {} {}", name_of(product), block_size, name_of(numbers.operands),
                                 name_of(numbers.partials)));
        const check::Verification v =
            run(random_matrix(512, 768, block_size, 1.0 / 16), problem_of(product, 96, numbers), bow);
        EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
      }
}

TEST(TiledGradients, NotFittingIsAnAnswer) {
  machine::Machine small = testing::toy_machine(2);
  small.tile_bytes = 5000;
  const Pattern pattern = random_matrix(256, 256, 16, 0.5).pattern;
  for (Product product : kGradients) {
    const bound::Product gradient = planned(pattern, problem_of(product, 64), small);
    EXPECT_FALSE(gradient.chosen().rejected.empty());
    EXPECT_FALSE(gradient.memory().fits());
  }
}

}  // namespace
}  // namespace tessera::ops
