// Products and their gradients on machines whose tiles have their own memories: correct, at the planned cost,
// and with W where the forward product has it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/random.h"
#include "ops/run_on_tiles.h"
#include "ops/sparse/static/static_layout.h"
#include "ops/tiles/product.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

constexpr ProductKind kProducts[] = {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm};
constexpr ProductKind kGradients[] = {ProductKind::input_gradient, ProductKind::sddmm};

ProductProblem problem_of(ProductKind product, uint32_t n, const TiledNumbers& numbers = {},
                          bool dense = false) {
  return {.n = n, .type = numbers.operands, .partials = numbers.partials, .dense = dense, .product = product};
}

TEST(TiledProducts, AreRightOnMachinesOfAnyNumberOfTiles) {
  test::EveryNth some(13);
  for (uint32_t tiles : {1U, 2U, 3U, 7U, 16U})
    for (uint32_t block_size : {1U, 3U, 4U, 8U, 16U, 32U})
      for (uint32_t n : {1U, 5U, 33U})
        for (const TiledNumbers& numbers : kNumbers)
          for (ProductKind product : kProducts)
            for (bool dense : {false, true}) {
              if (!some.takes()) continue;
              SCOPED_TRACE(fmt::format("{}: {} tiles, b = {}, n = {}, {} {}, dense {}", name_of(product),
                                       tiles, block_size, n, name_of(numbers.operands),
                                       name_of(numbers.partials), dense));
              const check::Verification v =
                  run(random_matrix(61, 45, block_size), problem_of(product, n, numbers, dense),
                      testing::toy_machine(tiles));
              EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
            }
}

TEST(TiledProducts, TakeEmptyShapesAndSingleElements) {
  for (const auto& [m, k, n] :
       {std::array{0U, 5U, 3U}, {5U, 0U, 3U}, {5U, 4U, 0U}, {1U, 1U, 1U}, {1U, 40U, 1U}, {40U, 1U, 7U}})
    for (uint32_t block_size : {1U, 8U})
      for (double density : {0.5, 0.0})
        for (ProductKind product : kProducts)
          for (bool dense : {false, true}) {
            SCOPED_TRACE(fmt::format("{}: {} × {} × {}, b = {}, dense {}", name_of(product), m, k, n,
                                     block_size, dense));
            EXPECT_TRUE(run(random_matrix(m, k, block_size, density), problem_of(product, n, {}, dense),
                            testing::toy_machine(4))
                            .verified);
          }
}

TEST(TiledProducts, AreRightForRandomShapesPatternsAndMachines) {
  constexpr PatternKind kKinds[] = {PatternKind::random, PatternKind::banded, PatternKind::power_law};
  for (uint64_t seed = 1; seed <= 180; ++seed) {
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
        problem_of(kProducts[random.below(3)], 1 + random.below(70), kNumbers[random.below(3)]);
    problem.dense = random.below(4) == 0;
    if (random.below(2) == 0) problem.rounding = seed;
    SCOPED_TRACE(fmt::format("seed {}: {} of {} × {}, n = {}, b = {}, {} {}, {} tiles, dense {}, rounded {}",
                             seed, name_of(problem.product), m, k, problem.n, block_size,
                             name_of(problem.type), name_of(problem.partials), tiles, problem.dense,
                             problem.rounding.has_value()));
    bound::BoundProduct product(matrix, problem, machine);
    const check::Verification v = ProductRun(matrix, problem, seed).run(product);
    EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
    expect_kept(product);
  }
}

TEST(TiledProducts, KeepTheirWord) {
  for (uint32_t tiles : {1U, 3U, 7U, 16U})
    for (uint32_t block_size : {1U, 4U})
      for (const TiledNumbers& numbers : kNumbers)
        for (uint32_t n : {1U, 20U, 65U})
          for (ProductKind product : kProducts)
            for (bool dense : {false, true}) {
              SCOPED_TRACE(fmt::format("{}: {} tiles, b = {}, {}, n = {}, dense {}", name_of(product), tiles,
                                       block_size, name_of(numbers.operands), n, dense));
              expect_kept(planned(random_matrix(61, 45, block_size).pattern,
                                  problem_of(product, n, numbers, dense), testing::toy_machine(tiles)));
            }
}

TEST(TiledProducts, KeepTheirWordAtRealSize) {
  const machine::Machine bow = machine::find("bow");
  const Pattern elements = random_matrix(1024, 1024, 1, 1.0 / 16).pattern;
  test::EveryNth some(5);
  const auto expect_word = [&](ProductKind product, Planner planner, uint32_t cols, uint32_t n) {
    SCOPED_TRACE(fmt::format("{}, n = {}, planner {}", name_of(product), n, static_cast<int>(planner)));
    const Pattern blocks = random_matrix(1024, cols, 16, 1.0 / 8).pattern;
    ProductProblem problem = problem_of(product, n, {Type::f16, Type::f16});
    problem.planner = planner;
    if (some.takes()) expect_kept(planned(blocks, problem, bow));
    if (some.takes()) expect_kept(planned(elements, problem, bow));
    problem.dense = true;
    if (some.takes()) expect_kept(planned(blocks, problem, bow));
  };
  for (uint32_t n : {4U, 256U})
    for (Planner planner : {Planner::best, Planner::vendor})
      expect_word(ProductKind::forward, planner, 1024, n);
  for (uint32_t n : {4U, 512U})
    for (ProductKind product : kGradients) expect_word(product, Planner::best, 2048, n);
}

TEST(TiledProducts, NotFittingIsAnAnswer) {
  machine::Machine small = testing::toy_machine(2);
  small.tile_bytes = 5000;
  const Pattern pattern = random_matrix(256, 256, 16, 0.5).pattern;
  for (ProductKind product : kProducts)
    for (bool dense : {false, true}) {
      const bound::BoundProduct overflowing = planned(pattern, problem_of(product, 64, {}, dense), small);
      EXPECT_FALSE(overflowing.chosen().rejected.empty());
      EXPECT_FALSE(overflowing.memory().fits());
      EXPECT_GE(overflowing.memory().max_tile_bytes, small.tile_bytes);
    }
}

TEST(TiledSpmm, IsRightForEveryCut) {
  const SparseMatrix matrix = random_matrix(61, 45, 4);
  for (int64_t cols : {1, 2, 3})
    for (int64_t bands : {1, 2, 4})
      for (int64_t tiles : {1, 2})
        EXPECT_TRUE(run(matrix, {.n = 9}, testing::toy_machine(24),
                        {{"col_parts", cols}, {"bands", bands}, {"band_tiles", tiles}})
                        .verified);
  for (int64_t m : {1, 3})
    for (int64_t k : {1, 2, 5})
      for (int64_t n : {1, 2})
        for (int64_t slices : {1, 4})
          for (const char* sliced : {"m_slices", "n_slices"}) {
            SCOPED_TRACE(fmt::format("m {} k {} n {}, {} {}", m, k, n, sliced, slices));
            EXPECT_TRUE(run(matrix, {.n = 9, .dense = true}, testing::toy_machine(30),
                            {{"m_parts", m}, {"k_parts", k}, {"n_parts", n}, {sliced, slices}})
                            .verified);
          }
}

/// The forced partition leaves the planner two candidates: with and without whole bands.
TEST(TiledSpmm, SendsWholeBandsWhereTilesUseNearlyAllOfThem) {
  const machine::Machine bow = machine::find("bow");
  const ProductProblem problem{.n = 64, .type = Type::f16, .partials = Type::f16};
  const ForcedKnobs forced = {{"col_parts", 2}, {"bands", 64}, {"band_tiles", 8}};
  const auto sends_whole_bands = [](const TileProductPlan& plan) {
    return std::get<StaticPartition>(plan.partition).whole_bands;
  };
  const auto exchange = [](const PlanCandidate& c) {
    return c.seconds.at[static_cast<size_t>(program::Phase::exchange)];
  };
  const SparseMatrix dense = random_matrix(1024, 1024, 16, 0.25);
  const SparseMatrix thin = random_matrix(1024, 1024, 16, 0.01);
  for (const SparseMatrix* matrix : {&dense, &thin}) {
    const bound::BoundProduct product(*matrix, problem, bow, forced);
    const TileProductPlan& plan = product.tile_plan();
    ASSERT_EQ(plan.candidates.size(), 2U);
    const bool is_whole_first = plan.candidates[0].partition.ends_with(" whole_bands");
    const PlanCandidate &whole = plan.candidates[is_whole_first ? 0 : 1],
                        &gathering = plan.candidates[is_whole_first ? 1 : 0];
    EXPECT_EQ(whole.partition, gathering.partition + " whole_bands");
    const bool whole_is_better = exchange(whole) < exchange(gathering);
    EXPECT_EQ(whole_is_better, matrix == &dense);
    EXPECT_EQ(sends_whole_bands(plan), whole_is_better);
    expect_kept(product);
  }
  ProductProblem wide = problem;
  wide.n = 1024;
  EXPECT_TRUE(sends_whole_bands(plan_tile_product(dense.pattern, wide, bow)));
  EXPECT_TRUE(run(dense, problem, bow, forced).verified);
}

TEST(TiledSpmm, WholeBandsHaveAllTheirRows) {
  const SparseMatrix matrix = random_matrix(1024, 1024, 16, 0.25);
  const StaticPartition partition{2, 4, 8, true};
  const StaticParts parts = deal_out(matrix.pattern, partition);
  for (uint32_t part = 0; part < partition.parts(); ++part)
    for (uint32_t i = parts.x_begin[part] + 1; i < parts.x_begin[part + 1]; ++i)
      EXPECT_EQ(parts.x_rows[i], parts.x_rows[i - 1] + 1);
}

TEST(TiledSpmm, DealsEveryBlockOutOnceInTheVendorsForm) {
  for (uint32_t block_size : {1U, 4U}) {
    const Pattern pattern = random_matrix(61, 45, block_size).pattern;
    const StaticPartition partition{.col_parts = 1, .bands = 3, .band_tiles = 0, .shared_tiles = 14};
    const StaticParts parts = deal_out(pattern, partition);
    std::vector<uint64_t> order = parts.order;
    std::sort(order.begin(), order.end());
    for (uint64_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
    ASSERT_EQ(parts.block_begin.size(), partition.parts() + 1);
    EXPECT_EQ(parts.block_begin.back(), pattern.blocks());
    for (uint32_t part = 1; part < 4; ++part)  // of the first band
      EXPECT_EQ(parts.block_begin[part] - parts.block_begin[part - 1], parts.block_begin[1]);
  }
}

TEST(TiledSpmm, DealsEveryBlockOutOnceAndInEqualCounts) {
  for (uint32_t block_size : {1U, 4U})
    for (const StaticPartition& partition :
         {StaticPartition{1, 1, 7}, StaticPartition{2, 5, 3}, StaticPartition{1, 12, 1, true}}) {
      const Pattern pattern = random_matrix(61, 45, block_size).pattern;
      const StaticParts parts = deal_out(pattern, partition);
      std::vector<uint64_t> order = parts.order;
      std::sort(order.begin(), order.end());
      for (uint64_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
      EXPECT_EQ(parts.block_begin.back(), pattern.blocks());
      for (uint32_t band = 0; band < partition.bands; ++band) {
        const auto count = [&](uint32_t tile) {
          const uint32_t part = band * partition.band_tiles + tile;
          return parts.block_begin[part + 1] - parts.block_begin[part];
        };
        for (uint32_t tile = 1; tile < partition.band_tiles; ++tile)
          EXPECT_LE(std::max(count(0), count(tile)) - std::min(count(0), count(tile)), 1U);
      }
    }
}

TEST(TiledSpmm, TheFreePlannerIsNeverSlowerThanTheVendors) {
  const machine::Machine bow = machine::find("bow");
  test::EveryNth some(5);
  for (const auto& [size, block_size, density] :
       {std::tuple{1024U, 8U, 1.0 / 16}, {257U, 1U, 0.1}, {512U, 16U, 0.25}})
    for (uint32_t n : {3U, 64U, 1024U})
      for (bool dense : {false, true}) {
        if (!some.takes()) continue;
        const Pattern pattern = random_matrix(size, size, block_size, density).pattern;
        const auto seconds = [&](Planner planner) {
          const ProductProblem problem{
              .n = n, .type = Type::f16, .partials = Type::f16, .planner = planner, .dense = dense};
          return plan_tile_product(pattern, problem, bow).chosen.total();
        };
        EXPECT_LE(seconds(Planner::best), seconds(Planner::vendor))
            << size << ", n = " << n << ", dense " << dense;
      }
}

TEST(TiledSpmm, RefusesWhatTilesLackAndUnknownKnobs) {
  const machine::Machine m = testing::toy_machine(6);
  const auto message = [&](const ProductProblem& problem, const ForcedKnobs& force) {
    return test::error_of<UsageError>([&] { check_tile_product(problem, m, force); });
  };
  EXPECT_TRUE(test::says(message({.n = 1, .type = Type::bf16}, {}), "f32 or f16, not in bf16"));
  EXPECT_TRUE(test::says(message({.n = 1}, {{"colour", 1}}),
                         "unknown knob 'colour' (choose from col_parts, bands, band_tiles)"));
  EXPECT_TRUE(test::says(message({.n = 1}, {{"bands", 7}}), "bands=7: a machine of 6 tiles takes 1 to 6"));
  EXPECT_TRUE(test::says(message({.n = 1}, {{"bands", 3}, {"col_parts", 3}}),
                         "is 9, more than the machine's 6 tiles"));
  EXPECT_TRUE(test::says(message({.n = 1, .dense = true}, {{"m_slices", 2}, {"n_slices", 2}}),
                         "only one of m and n"));
  EXPECT_TRUE(test::says(message({.n = 1, .planner = Planner::vendor}, {{"band_tiles", 2}}),
                         "band_tiles=2: the vendor's planner gives each band tiles by its blocks"));
  EXPECT_TRUE(
      test::says(message({.n = 1, .planner = Planner::vendor, .product = ProductKind::sddmm}, {{"bands", 2}}),
                 "bands=2: the vendor's planner computes an SDDMM in the forward product's partition"));
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
          plan_tile_product(matrix.pattern, problem_of(ProductKind::forward, 9), m, forward_partition);
      for (const ForcedKnobs& partition : partitions)
        for (ProductKind product : kGradients) {
          SCOPED_TRACE(
              fmt::format("b = {}, {} of {}", block_size, name_of(product), forward.chosen.partition));
          const ProductProblem problem = problem_of(product, 9);
          bound::BoundProduct gradient(matrix, problem, m, partition, &forward);
          EXPECT_EQ(gradient.tile_program().block_order, forward.layouts.values.blocks);
          EXPECT_TRUE(ProductRun(matrix, problem).run(gradient).verified);
        }
    }
  }
}

TEST(TiledGradients, StoreTheValuesOfWOnce) {
  const machine::Machine m = testing::toy_machine(16);
  const Pattern pattern = random_matrix(64, 48, 4).pattern;
  const bound::BoundProduct forward = planned(pattern, problem_of(ProductKind::forward, 8), m);
  for (ProductKind product : kGradients) {
    const bound::BoundProduct gradient =
        planned(pattern, problem_of(product, 8), m, {}, &forward.tile_plan());
    const auto values = [](const bound::BoundProduct& p) {
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
    EXPECT_EQ(inputs_of_w, product == ProductKind::input_gradient ? 1U : 0U);
  }
}

/// An SDDMM with the forward product's own partition sends nothing.
TEST(TiledGradients, BlocksStayWhereTheyAreComputed) {
  const machine::Machine m = testing::toy_machine(12);
  const Pattern pattern = random_matrix(64, 48, 4).pattern;
  const ForcedKnobs partition = {{"col_parts", 1}, {"bands", 3}, {"band_tiles", 4}};
  const TileProductPlan forward =
      plan_tile_product(pattern, problem_of(ProductKind::forward, 8), m, partition);
  const bound::BoundProduct gradient =
      planned(pattern, problem_of(ProductKind::sddmm, 8), m, partition, &forward);
  EXPECT_EQ(gradient.executable().program->copy_sets().size(), 1U);
  EXPECT_EQ(gradient.executable().program->compute_sets().size(), 1U);
}

TEST(TiledGradients, AreRightOnBow) {
  const machine::Machine bow = machine::find("bow");
  test::EveryNth some(5);
  for (uint32_t block_size : {1U, 4U, 8U, 16U})
    for (ProductKind product : kGradients)
      for (const TiledNumbers& numbers : kNumbers) {
        if (!some.takes()) continue;
        SCOPED_TRACE(fmt::format("{}, b = {}, {} {}", name_of(product), block_size, name_of(numbers.operands),
                                 name_of(numbers.partials)));
        const check::Verification v =
            run(random_matrix(512, 768, block_size, 1.0 / 16), problem_of(product, 96, numbers), bow);
        EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
      }
}

}  // namespace
}  // namespace tessera::ops
