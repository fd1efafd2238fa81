// Choices of the tile planners at, and just beyond, the limits of memory and of publications.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>
#include <tuple>
#include <vector>

#include "ops/run_on_tiles.h"
#include "ops/sparse/static/grouped_sums.h"
#include "ops/sparse/static/vendor_layout.h"
#include "ops/sparse/static/vendor_partition.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

ForcedKnobs knobs_of(const TileProductPlan& plan) {
  if (const auto* dense = std::get_if<DensePartition>(&plan.partition))
    return {{"m_parts", dense->m_parts},
            {"k_parts", dense->k_parts},
            {"n_parts", dense->n_parts},
            {"m_slices", dense->m_slices},
            {"n_slices", dense->n_slices}};
  const auto& partition = std::get<StaticPartition>(plan.partition);
  ForcedKnobs knobs = {{"col_parts", partition.col_parts}, {"bands", partition.bands}};
  if (!partition.is_vendors()) knobs["band_tiles"] = partition.band_tiles;
  return knobs;
}

TEST(PlannerLimits, APlanMayFillATileToTheLastByte) {
  for (bool dense : {false, true})
    for (ProductKind product : {ProductKind::forward, ProductKind::sddmm}) {
      SCOPED_TRACE(fmt::format("dense {}, {}", dense, name_of(product)));
      const Pattern pattern = random_matrix(96, 80, 4, 0.3).pattern;
      const ProductProblem problem{.n = 24, .dense = dense, .product = product};
      machine::Machine m = testing::toy_machine(12, 1 << 20);
      const ForcedKnobs force = knobs_of(plan_tile_product(pattern, problem, m));
      const TileProductPlan roomy = plan_tile_product(pattern, problem, m, force);
      // Where the memory ends decides where interleaved pieces lie, hence how much lies between them and
      // others.
      m.tile_bytes = roomy.chosen.max_tile_bytes;
      for (int i = 0; i < 8 && !planned(pattern, problem, m, force).memory().fits(); ++i)
        m.tile_bytes += planned(pattern, problem, m, force).memory().overflow_bytes;
      const bound::BoundProduct exact = planned(pattern, problem, m, force);
      EXPECT_LE(m.tile_bytes, roomy.chosen.max_tile_bytes + roomy.chosen.max_tile_bytes / 20);
      EXPECT_EQ(exact.tile_plan().partition, roomy.partition);
      EXPECT_TRUE(exact.chosen().rejected.empty());
      EXPECT_TRUE(exact.memory().fits());
      m.tile_bytes = roomy.chosen.max_tile_bytes - 1;
      const bound::BoundProduct tight = planned(pattern, problem, m, force);
      EXPECT_FALSE(tight.memory().fits());
      const auto same =
          std::ranges::find(tight.candidates(), roomy.chosen.partition, &PlanCandidate::partition);
      ASSERT_NE(same, tight.candidates().end());
      EXPECT_EQ(same->rejected, fmt::format("needs {} bytes per tile of {}",
                                            m.tile_bytes + tight.memory().overflow_bytes, m.tile_bytes));
    }
}

/// Each exact cost takes a program: where the operands alone are a byte too large, one program is enough.
TEST(PlannerLimits, WhereNothingCanFitOnePlanIsCounted) {
  const Pattern pattern = random_matrix(96, 80, 4, 0.3).pattern;
  for (bool dense : {false, true}) {
    const uint64_t weight = dense ? 96 * 80 : pattern.blocks() * 16;
    const uint64_t bytes = 4 * (weight + (96 + 80) * 24);
    machine::Machine m = testing::toy_machine(4);
    const auto counted = [&](uint64_t tile_bytes) {
      m.tile_bytes = tile_bytes;
      const bound::BoundProduct chosen = planned(pattern, {.n = 24, .dense = dense}, m);
      EXPECT_FALSE(chosen.memory().fits());
      return std::ranges::count_if(chosen.candidates(), [](const PlanCandidate& candidate) {
        return candidate.rejected.starts_with("needs ");
      });
    };
    EXPECT_EQ(counted((bytes + 3) / 4 - 1), 1);
    EXPECT_GT(counted((bytes + 3) / 4), 1);
  }
}

/// A tile's copy of X is its only temporary: 64 × 150 floats, 38,400 bytes, 0.6 of 64,000.
TEST(PlannerLimits, VendorDensePlansKeepTemporariesToSixTenths) {
  const DenseShape shape{256, 64, 150, {}};
  machine::Machine m = testing::toy_machine(16);
  const auto bytes_with = [&](uint64_t tile_bytes, Planner planner) {
    m.tile_bytes = tile_bytes;
    return dense_partitions(shape, planner, m, {16, 1, 1, 1, 1}).at(0).bytes;
  };
  EXPECT_LE(bytes_with(64'001, Planner::vendor), 64'001);
  EXPECT_GT(bytes_with(63'999, Planner::vendor), 63'999);
  EXPECT_LE(bytes_with(63'999, Planner::best), 63'999);
}

/// The temporaries of one tile: X, W and the partial sums.
TEST(PlannerLimits, VendorStaticPlansKeepTemporariesToSixTenths) {
  const Pattern pattern = random_matrix(64, 64, 4, 1.0).pattern;
  const double bytes = 4.0 * (64 * 16 + 256 * 16 + 64 * 16);
  machine::Machine m = testing::toy_machine(1);
  const auto has_plan = [&](uint64_t tile_bytes) {
    m.tile_bytes = tile_bytes;
    return vendor_partition({pattern, 16, {}}, m).has_value();
  };
  const auto edge = static_cast<uint64_t>(bytes / 0.6);
  EXPECT_TRUE(has_plan(edge + 1));
  EXPECT_FALSE(has_plan(edge - 1));
}

// Full matrices on 64 tiles of a Bow: the partition with the least estimate by PopLibs' formulas, computed by
// hand.
TEST(PlannerLimits, VendorStaticPlansAreThoseOfPopLibsEstimate) {
  machine::Machine bow = machine::find("bow");
  bow.tiles = 64;
  const auto choice = [&](uint32_t size, uint32_t block_size, uint32_t n, Type type) {
    const Pattern pattern = random_matrix(size, size, block_size, 1.0).pattern;
    const std::optional<StaticPartition> found = vendor_partition({pattern, n, {type, type}}, bow);
    EXPECT_EQ(found->col_grain, type == Type::f16 ? 4U : 2U);
    return std::tuple(found->col_parts, found->bands, found->shared_tiles);
  };
  EXPECT_EQ(choice(256, 16, 64, Type::f16), std::tuple(2U, 4U, 32U));
  EXPECT_EQ(choice(256, 4, 64, Type::f16), std::tuple(1U, 4U, 64U));
  EXPECT_EQ(choice(64, 1, 16, Type::f16), std::tuple(2U, 5U, 32U));
  EXPECT_EQ(choice(256, 8, 96, Type::f32), std::tuple(1U, 4U, 64U));
  EXPECT_EQ(choice(256, 1, 32, Type::f32), std::tuple(1U, 4U, 64U));
}

TEST(PlannerLimits, VendorStaticPlansTakeForcedNumbersOfParts) {
  machine::Machine bow = machine::find("bow");
  bow.tiles = 64;
  const ProductProblem problem{.n = 64, .type = Type::f16, .partials = Type::f16, .planner = Planner::vendor};
  const Pattern pattern = random_matrix(256, 256, 4, 0.5).pattern;
  const TileProductPlan plan = plan_tile_product(pattern, problem, bow, {{"col_parts", 4}, {"bands", 3}});
  const auto& partition = std::get<StaticPartition>(plan.partition);
  EXPECT_EQ(std::tuple(partition.col_parts, partition.bands, partition.shared_tiles),
            std::tuple(4U, 3U, 16U));
  EXPECT_EQ(plan.candidates.size(), 1U);
  EXPECT_TRUE(plan.chosen.rejected.empty());
  // 16 vectors of columns in equal parts are never 7 parts, nor more than 16.
  for (const uint32_t col_parts : {7U, 33U})
    EXPECT_TRUE(
        test::says(plan_tile_product(pattern, problem, bow, {{"col_parts", col_parts}}).chosen.rejected,
                   "finds no plan"));
}

/// dW has the forward product's partition, and no plan if the forward product has none.
TEST(PlannerLimits, VendorSddmmHasNoPlanWithoutOneOfTheForwardProduct) {
  const machine::Machine m = testing::toy_machine(2);
  ProductProblem problem{.n = 64, .planner = Planner::vendor};
  const Pattern pattern = random_matrix(256, 256, 4, 1.0).pattern;
  EXPECT_FALSE(vendor_partition({pattern, 64, {}}, m).has_value());
  for (const ProductKind product : {ProductKind::forward, ProductKind::sddmm}) {
    problem.product = product;
    EXPECT_TRUE(test::says(plan_tile_product(pattern, problem, m).chosen.rejected, "finds no plan"));
  }
}

// Three bands of 100, 100 and 40 blocks: 24 · 100 / 240 = 10 tiles of 10 blocks each, and the last one the
// rest. Bands that need fewer tiles than their share, in pairs, leave them to the last one.
TEST(PlannerLimits, VendorBandsShareTilesByTheirBlocks) {
  using Tiles = std::vector<uint32_t>;
  EXPECT_EQ(vendor_band_tiles({100, 100, 40}, 24), (Tiles{10, 10, 4}));
  EXPECT_EQ(vendor_band_tiles({9, 9}, 16), (Tiles{6, 10}));
  EXPECT_EQ(vendor_band_tiles({5}, 1), Tiles{1});
  EXPECT_EQ(vendor_band_tiles({1, 1, 1}, 4), Tiles{});
}

// The column with less than a tenth of the mean follows the others.
TEST(PlannerLimits, VendorBandsTakeColumnsWithFewBlocksLast) {
  const VendorColumnOrder order({0, 20, 20, 20, 20, 1});
  EXPECT_EQ(order.kept(), 4U);
  EXPECT_EQ(order.band_of_columns(2), (std::vector<uint32_t>{1, 0, 0, 0, 1, 1}));
  const VendorBands bands = order.split(2);
  EXPECT_EQ(bands.blocks, (std::vector<uint64_t>{60, 21}));
  EXPECT_EQ(bands.cols, (std::vector<uint32_t>{3, 3}));
  EXPECT_EQ(bands.widest, 3U);
}

/// Each part is a range of columns of block rows, and within a grain of the others.
TEST(PlannerLimits, VendorMatricesLieInEqualPartsBlockRowByBlockRow) {
  for (const auto& [rows, cols, block_size] :
       {std::tuple{64U, 24U, 4U}, {61U, 9U, 16U}, {200U, 4U, 1U}, {32U, 1000U, 8U}}) {
    SCOPED_TRACE(fmt::format("{} × {}, b = {}", rows, cols, block_size));
    const uint32_t grain = block_size == 1 ? 4 : 16;
    const std::vector<program::MappedBox> mapping = map_by_blocks(rows, cols, block_size, grain, 24);
    std::vector<uint64_t> columns(24);
    uint64_t next = 0;
    for (const auto& [box, tile] : mapping) {
      EXPECT_EQ(box.row, next / cols * block_size);
      EXPECT_EQ(box.col, next % cols);
      const uint64_t here = uint64_t{(box.rows + block_size - 1) / block_size} * box.cols;
      columns[tile] += here;
      next += here;
    }
    EXPECT_EQ(next, uint64_t{(rows + block_size - 1) / block_size} * cols);
    const auto [least, most] =
        std::ranges::minmax(columns | std::views::filter([](uint64_t n) { return n > 0; }));
    EXPECT_LE(most - least, 2 * std::max(1U, grain / block_size));
  }
}

// 512 × 512 non-zeros: 131,072 for each of two tiles, five sixths of which are before the last worker's.
TEST(PlannerLimits, VendorStaticPlansMayHaveListsTooLongForTheirOffsets) {
  const Pattern pattern = random_matrix(512, 512, 1, 1.0).pattern;
  machine::Machine bow = machine::find("bow");
  const auto has_plan = [&](uint32_t tiles) {
    bow.tiles = tiles;
    return vendor_partition({pattern, 8, {Type::f16, Type::f16}}, bow).has_value();
  };
  EXPECT_FALSE(has_plan(2));
  EXPECT_TRUE(has_plan(4));
  const ProductProblem problem{.n = 8, .type = Type::f16, .partials = Type::f16, .planner = Planner::vendor};
  bow.tiles = 2;
  EXPECT_FALSE(plan_tile_product(pattern, problem, bow).chosen.rejected.empty());
}

/// PopLibs' rule, computed by hand: the depth with the fewest messages.
TEST(PlannerLimits, VendorDensePlansAddManyPartialSumsInStages) {
  using Depths = std::vector<uint32_t>;
  EXPECT_EQ(vendor_sum_depths(15), Depths{});
  EXPECT_EQ(vendor_sum_depths(16), Depths{4});
  EXPECT_EQ(vendor_sum_depths(22), Depths{5});
  EXPECT_EQ(vendor_sum_depths(200), (Depths{35, 6}));
}

TEST(PlannerLimits, VendorSumsAreRight) {
  machine::Machine bow = machine::find("bow");
  bow.tiles = 64;
  const SparseMatrix matrix = random_matrix(192, 512, 4, 0.1);
  for (bool dense : {false, true})
    for (uint32_t n : {3U, 24U, 200U}) {
      SCOPED_TRACE(fmt::format("dense {}, n = {}", dense, n));
      const ProductProblem problem{
          .n = n, .type = Type::f16, .partials = Type::f16, .planner = Planner::vendor, .dense = dense};
      const ForcedKnobs force = dense ? ForcedKnobs{{"m_parts", 2}, {"k_parts", 32}} : ForcedKnobs{};
      const TileProductPlan plan = plan_tile_product(matrix.pattern, problem, bow, force);
      EXPECT_TRUE(dense ? std::get<DensePartition>(plan.partition).staged_sums
                        : std::get<StaticPartition>(plan.partition).is_vendors());
      EXPECT_TRUE(run(matrix, problem, bow, force).verified);
    }
}

TEST(PlannerLimits, VendorStaticProductsAreRight) {
  machine::Machine m = testing::toy_machine(24);
  m.workers_per_tile = 6;
  for (uint32_t block_size : {1U, 4U, 16U})
    for (ProductKind product : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm}) {
      SCOPED_TRACE(fmt::format("b = {}, {}", block_size, name_of(product)));
      const SparseMatrix matrix = random_matrix(61, 45, block_size, 0.4);
      const ProductProblem problem{.n = 9, .planner = Planner::vendor, .product = product};
      const TileProductPlan plan = plan_tile_product(matrix.pattern, problem, m);
      EXPECT_TRUE(std::get<StaticPartition>(plan.partition).is_vendors());
      EXPECT_TRUE(run(matrix, problem, m).verified);
    }
}

/// The free planner also compares the forward product's partition, whether it is the vendor's or not.
TEST(PlannerLimits, SddmmMayKeepTheForwardPartition) {
  const machine::Machine m = testing::toy_machine(24);
  const Pattern pattern = random_matrix(64, 48, 4).pattern;
  for (Planner planner : {Planner::best, Planner::vendor}) {
    ProductProblem problem{.n = 12, .planner = planner};
    const TileProductPlan forward = plan_tile_product(pattern, problem, m);
    problem.product = ProductKind::sddmm;
    problem.planner = Planner::best;
    const TileProductPlan gradient = plan_tile_product(pattern, problem, m, {}, &forward);
    EXPECT_EQ(gradient.candidates.front().partition, forward.chosen.partition);
  }
}

/// Every element of the sums belongs to one worker, and elements that are not sent lie where the result does.
TEST(PlannerLimits, VendorStaticSumsCoverTheResult) {
  machine::Machine m = testing::toy_machine(24);
  m.workers_per_tile = 6;
  bool any_moved = false, any_kept = false;
  for (const auto& [rows, cols, block_size] :
       {std::tuple{60U, 4U, 1U}, {60U, 512U, 1U}, {10U, 96U, 1U}, {24U, 1U, 1U}, {61U, 40U, 4U}}) {
    const std::vector<program::MappedBox> result = block_size == 1
                                                       ? program::map_linearly(rows, cols, m.tiles)
                                                       : map_by_blocks(rows, cols, block_size, 16, m.tiles);
    std::vector<uint32_t> partials;
    for (uint32_t row = 0; row < rows; ++row) {
      const uint32_t i = row / block_size;
      partials.push_back(i % 20 == 4 ? 4 : i % 10 < 2 ? i % 10 : i % 7 == 6 ? 6 : 5);
    }
    const GroupedSums sums = group_sums({partials, block_size, cols}, result, {Type::f16, Type::f16}, m);
    (sums.moved ? any_moved : any_kept) = true;
    std::vector<uint32_t> positions = sums.position;
    std::ranges::sort(positions);
    for (uint32_t row = 0; row < rows; ++row) EXPECT_EQ(positions[row], row);
    std::vector<uint32_t> times(size_t{rows} * cols);
    for (const program::MappedBox& piece : sums.pieces) {
      EXPECT_LT(piece.tile, m.tiles);
      const bool lies_there = std::ranges::any_of(result, [&](const program::MappedBox& mapped) {
        return mapped.tile == piece.tile && program::contains(mapped.box, piece.box);
      });
      EXPECT_TRUE(sums.moved || lies_there);
      for (uint32_t row = piece.box.row; row < piece.box.row_end(); ++row)
        for (uint32_t col = piece.box.col; col < piece.box.col_end(); ++col)
          ++times[size_t{row} * cols + col];
    }
    EXPECT_TRUE(std::ranges::all_of(times, [](uint32_t count) { return count == 1; }));
  }
  EXPECT_TRUE(any_kept);
  EXPECT_TRUE(any_moved);
}

TEST(PlannerLimits, VendorStaticSumsTakeNoMoreWorkersThanATileHas) {
  machine::Machine m = testing::toy_machine(1);
  const auto pieces = [&](uint32_t workers) {
    m.workers_per_tile = workers;
    const std::vector<uint32_t> partials = {2, 3, 4, 5};
    return group_sums({partials, 1, 64}, program::map_linearly(4, 64, 1), {Type::f16, Type::f16}, m)
        .pieces.size();
  };
  EXPECT_EQ(pieces(1), 4U);
  EXPECT_EQ(pieces(3), 8U);
}

// 16 rows of 20 columns on a tile, with two numbers of partial sums: three workers for each, of 7, 7 and 6
// columns.
TEST(PlannerLimits, VendorStaticSumsAreDividedByElements) {
  machine::Machine m = testing::toy_machine(2);
  m.workers_per_tile = 6;
  std::vector<uint32_t> partials(16, 2);
  partials.resize(32, 3);
  const std::vector<program::MappedBox> result = map_by_blocks(32, 20, 16, 16, 2);
  const GroupedSums sums = group_sums({partials, 16, 20}, result, {Type::f16, Type::f16}, m);
  EXPECT_FALSE(sums.moved);
  ASSERT_EQ(sums.pieces.size(), 6U);
  for (const program::MappedBox& piece : sums.pieces) {
    EXPECT_EQ(piece.box.rows, 16U);
    EXPECT_GE(piece.box.cols, 6U);
    EXPECT_LE(piece.box.cols, 7U);
  }
}

using Grid = std::array<uint32_t, 3>;

/// The grid that the vendor's planner takes for PopSparse's products of m = k = 4,096, or zeros.
Grid vendor_grid(Type type, uint32_t block_size, uint32_t inverse_density, uint32_t n) {
  const uint64_t capacity = uint64_t{4096} * 4096 / inverse_density / block_size / block_size;
  const DynamicShape shape{4096, 4096, n, block_size, capacity, {type, Type::f32}};
  const auto found = dynamic_tilings(shape, Planner::vendor, machine::find("bow"), {0, 0, 0});
  if (found.empty()) return {};
  const DynamicTiling& tiling = found.at(0).partition;
  return {tiling.m_parts, tiling.k_parts, tiling.n_parts};
}

TEST(PlannerLimits, VendorDynamicGridsAreThoseThatPopLibsFindsFastest) {
  EXPECT_EQ(vendor_grid(Type::f16, 1, 4, 256), (Grid{38, 19, 2}));
  EXPECT_EQ(vendor_grid(Type::f16, 1, 32, 256), (Grid{19, 19, 4}));
  EXPECT_EQ(vendor_grid(Type::f16, 4, 16, 1024), (Grid{14, 13, 8}));
  EXPECT_EQ(vendor_grid(Type::f16, 8, 16, 64), (Grid{19, 19, 4}));
  EXPECT_EQ(vendor_grid(Type::f16, 16, 4, 256), (Grid{22, 16, 4}));
  EXPECT_EQ(vendor_grid(Type::f16, 16, 32, 1024), (Grid{6, 7, 32}));
  EXPECT_EQ(vendor_grid(Type::f32, 1, 16, 64), (Grid{38, 19, 2}));
  EXPECT_EQ(vendor_grid(Type::f32, 4, 16, 1024), (Grid{14, 13, 8}));
  // No grid keeps its temporaries to 0.6 of the memory.
  EXPECT_EQ(vendor_grid(Type::f16, 1, 32, 1024), Grid{});
  EXPECT_EQ(vendor_grid(Type::f16, 16, 16, 4096), Grid{});
}

/// Blocks of other sizes are composed of blocks of PopLibs' sizes, and all have places in buckets.
TEST(PlannerLimits, VendorDynamicPlansTakeAnyBlockSize) {
  for (Type type : {Type::f16, Type::f32})
    for (uint32_t block_size : {1U, 2U, 5U, 12U, 24U, 100U}) {
      SCOPED_TRACE(fmt::format("{}, b = {}", name_of(type), block_size));
      const DynamicShape shape{96, 90, 8, block_size, 1, {type, Type::f32}};
      const auto found =
          dynamic_tilings(shape, Planner::vendor, testing::toy_machine(16, 1 << 20), {0, 0, 0});
      ASSERT_EQ(found.size(), 1U);
      EXPECT_GE(found[0].partition.bucket_blocks, 1U);
    }
}

/// Each of the 16 tiles that share a partition has metadata for all of its rows.
TEST(PlannerLimits, VendorDynamicBucketsRepeatMetadata) {
  const DynamicShape shape{4096, 4096, 1024, 16, 4096, {Type::f16, Type::f32}};
  const machine::Machine bow = machine::find("bow");
  const DynamicTiling tiling = dynamic_tilings(shape, Planner::vendor, bow, {0, 0, 0}).at(0).partition;
  EXPECT_EQ(to_string(tiling), "m_parts=10 k_parts=9 n_parts=16 bucket_blocks=64 bucket_words=2560");
  EXPECT_EQ(DynamicGrid(shape, tiling, bow).bucket_words, tiling.bucket_words);
}

/// The transposes of a bucket of 5 blocks, a part of dY, and two buckets with 32 words of metadata.
TEST(PlannerLimits, VendorDynamicPlansKeepTemporariesOfBothProductsToTheirFraction) {
  const DynamicShape shape{64, 64, 16, 4, 64, {}};
  machine::Machine m = testing::toy_machine(16);
  const double temporaries = 5 * 64 + 16 * 16 * 4 + 2 * (5 * 64 + 2 * 32);
  const auto plans = [&](Planner planner, double tile_bytes) {
    m.tile_bytes = static_cast<uint64_t>(tile_bytes);
    return dynamic_tilings(shape, planner, m, {4, 4, 1}).size();
  };
  EXPECT_EQ(plans(Planner::vendor, temporaries / 0.6 + 2), 1U);
  EXPECT_EQ(plans(Planner::vendor, temporaries / 0.6 - 2), 0U);
  EXPECT_GT(plans(Planner::best, 1), 0U);
}

/// Buckets' metadata number partitions in 16 bits.
TEST(PlannerLimits, DynamicPlansHaveNoMorePartitionsThanMetadataNumbers) {
  const DynamicShape shape{300, 300, 1, 1, 1000, {}};
  const machine::Machine m = testing::toy_machine(80'000);
  const auto plans = [&](uint32_t m_parts, uint32_t k_parts) {
    return dynamic_tilings(shape, Planner::best, m, {m_parts, k_parts, 1}).size();
  };
  EXPECT_GT(plans(255, 257), 0U);
  EXPECT_EQ(plans(256, 256), 0U);
  EXPECT_EQ(plans(300, 250), 0U);
}

}  // namespace
}  // namespace tessera::ops
