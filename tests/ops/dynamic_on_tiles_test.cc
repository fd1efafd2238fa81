// Dynamic products on machines whose tiles have their own memories: every pattern correct with one program,
// buckets as specified, and costs as predicted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "compiler/compile.h"
#include "kernels/tile/bucket/metadata.h"
#include "ops/run_on_tiles.h"
#include "ops/sparse/dynamic/dynamic.h"
#include "ops/sparse/static/static_layout.h"
#include "sparse/generate.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

constexpr ProductKind kProducts[] = {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm};
constexpr ProductKind kGradients[] = {ProductKind::input_gradient, ProductKind::sddmm};

/// All blocks in the first rows and columns, as an almost full square: one partition's bucket, and many
/// steps.
SparseMatrix cornered_matrix(uint32_t m, uint32_t k, uint32_t block_size, uint64_t blocks) {
  Pattern p{m, k, block_size, {0}, {}};
  uint32_t side = 1;
  while (uint64_t{side} * side < blocks) ++side;
  for (uint32_t r = 0; r < p.block_rows(); ++r) {
    for (uint32_t c = 0; r < side && c < std::min(side, p.block_cols()) && p.col_indices.size() < blocks; ++c)
      p.col_indices.push_back(c);
    p.crow_indices.push_back(p.col_indices.size());
  }
  return {p, sparse::random_values(p, 5)};
}

/// Sets the matrix, runs, and compares with float64 and with the exact cost of the pattern.
void expect_right(bound::BoundProduct& product, const SparseMatrix& matrix, uint64_t seed = 3) {
  product.set_matrix(matrix);
  ProductRun run(matrix, product.problem(), seed);
  const check::Verification v = run.run(product);
  EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
  const DynamicWeight& dynamic = *product.tile_program().dynamic;
  const compiler::Estimate exact = dynamic.estimate(*product.executable().program, product.machine());
  const PlanCandidate of_pattern{"", exact.cycles.scaled(1 / product.machine().clock_hz),
                                 exact.memory.max_tile_bytes, ""};
  expect_kept(of_pattern, product.executable(), run.profile().cycles);
  EXPECT_EQ(exact.memory.max_tile_bytes, product.chosen().max_tile_bytes);
  for (const engine::StepProfile& step : run.profile().sets) {
    if (step.name == "propagation") {
      EXPECT_EQ(step.times, dynamic.encoding.steps);
    }
  }
}

SparseMatrix generated(PatternKind kind, uint32_t m, uint32_t k, uint32_t block_size, double density,
                       uint64_t seed) {
  return generate({kind, m, k, density, block_size, seed});
}

ProductProblem dynamic_problem(uint32_t n, TiledNumbers numbers, uint64_t capacity,
                               ProductKind product = ProductKind::forward) {
  return {.n = n,
          .type = numbers.operands,
          .partials = numbers.partials,
          .product = product,
          .capacity = capacity};
}

TEST(TiledDynamic, OneProgramServesEveryPattern) {
  constexpr uint32_t kRows = 61, kCols = 45;
  test::EveryNth some(13);
  for (uint32_t tiles : {1U, 2U, 7U, 16U, 24U})
    for (uint32_t block_size : {1U, 3U, 4U, 16U})
      for (uint32_t n : {1U, 5U, 33U})
        for (const TiledNumbers& numbers : kNumbers)
          for (ProductKind kind : kProducts) {
            if (!some.takes()) continue;
            const SparseMatrix first = random_matrix(kRows, kCols, block_size, 0.25);
            const uint64_t capacity = first.pattern.blocks();
            bound::BoundProduct product(first, dynamic_problem(n, numbers, capacity, kind),
                                        testing::toy_machine(tiles));
            const auto expect_named = [&](const char* what, const SparseMatrix& matrix) {
              SCOPED_TRACE(fmt::format("{}: {} tiles, b = {}, n = {}, {} {}, {}: {}", name_of(kind), tiles,
                                       block_size, n, name_of(numbers.operands), name_of(numbers.partials),
                                       what, product.chosen().partition));
              expect_right(product, matrix);
            };
            expect_named("full", first);
            for (uint64_t seed : {1U, 2U})
              expect_named("random", generated(PatternKind::random, kRows, kCols, block_size, 0.2, seed));
            expect_named("empty", generated(PatternKind::random, kRows, kCols, block_size, 0, 1));
            expect_named("worst", cornered_matrix(kRows, kCols, block_size, capacity));
            expect_named("power law", generated(PatternKind::power_law, kRows, kCols, block_size, 0.15, 1));
            expect_named("banded", generated(PatternKind::banded, kRows, kCols, block_size, 0.15, 1));
          }
}

/// Blocks of one row of a partition in a bucket, read back from its metadata.
struct Piece {
  uint32_t partition;
  uint32_t row;
  std::vector<uint32_t> columns;
  uint64_t first_place;
};

struct ReadBucket {
  std::vector<Piece> pieces;
  std::set<uint32_t> partitions;
  uint32_t blocks = 0;
  uint32_t words = kernels::kBucketHeaderWords;
};

std::vector<ReadBucket> read_back(const DynamicEncoding& encoding, const DynamicGrid& grid) {
  std::vector<ReadBucket> buckets(grid.tiling.partitions());
  for (uint32_t b = 0; b < buckets.size(); ++b) {
    ReadBucket& read = buckets[b];
    const kernels::BucketView bucket(encoding.metadata.data() + uint64_t{b} * grid.bucket_words);
    EXPECT_EQ(bucket.number(), b);
    bucket.each_subgroup([&](const kernels::Subgroup& subgroup, uint32_t first) {
      EXPECT_TRUE(read.partitions.insert(subgroup.partition()).second);
      read.blocks += subgroup.blocks();
      read.words += subgroup.words();
      subgroup.each_row(grid.block_size,
                        [&](uint32_t row, uint32_t value, std::span<const uint16_t> columns) {
                          read.pieces.push_back({subgroup.partition(),
                                                 row,
                                                 {columns.begin(), columns.end()},
                                                 uint64_t{b} * grid.tiling.bucket_blocks + first + value});
                        });
    });
  }
  return buckets;
}

/// Whether a bucket could have taken that number of blocks of a row of a partition.
bool has_room(const ReadBucket& bucket, uint32_t partition, size_t blocks, const DynamicGrid& grid) {
  const uint32_t header = bucket.partitions.contains(partition)
                              ? 0
                              : kernels::subgroup_header_words(grid.block_size, grid.workers);
  return bucket.blocks + blocks <= grid.tiling.bucket_blocks &&
         bucket.words + header + kernels::kBucketRowWords + blocks <= grid.bucket_words;
}

void expect_well_encoded(const Pattern& pattern, const DynamicShape& shape, const DynamicGrid& grid) {
  const DynamicEncoding encoding = encode(pattern, shape, grid);
  const std::vector<ReadBucket> buckets = read_back(encoding, grid);
  const auto partitions = static_cast<uint32_t>(buckets.size());
  std::vector<uint32_t> times(pattern.blocks());
  uint32_t furthest = 0;
  for (uint32_t b = 0; b < partitions; ++b) {
    EXPECT_LE(buckets[b].blocks, grid.tiling.bucket_blocks);
    EXPECT_LE(buckets[b].words, grid.bucket_words);
    for (const Piece& piece : buckets[b].pieces) {
      const uint32_t row = grid.m_part(piece.partition) * grid.part_rows + piece.row;
      for (size_t i = 0; i < piece.columns.size(); ++i) {
        const uint64_t block = encoding.block_order.at(piece.first_place + i);
        ASSERT_LT(block, pattern.blocks());
        ++times[block];
        EXPECT_EQ(pattern.col_indices[block],
                  grid.k_part(piece.partition) * grid.part_cols + piece.columns[i]);
        EXPECT_GE(block, pattern.crow_indices[row]);
        EXPECT_LT(block, pattern.crow_indices[row + 1]);
      }
      const uint32_t distance = (b + partitions - piece.partition) % partitions;
      furthest = std::max(furthest, distance);
      // Nearer buckets have no capacity for the blocks that lie here.
      for (uint32_t nearer = 0; nearer < distance; ++nearer)
        EXPECT_FALSE(has_room(buckets[(piece.partition + nearer) % partitions], piece.partition,
                              piece.columns.size(), grid));
    }
  }
  EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](uint32_t t) { return t == 1; }));
  EXPECT_EQ(static_cast<uint64_t>(std::count(encoding.block_order.begin(), encoding.block_order.end(),
                                             DynamicEncoding::kNoBlock)),
            encoding.block_order.size() - pattern.blocks());
  EXPECT_EQ(encoding.steps, furthest);
}

TEST(TiledDynamic, BucketsHoldEveryBlockOnceAsNearAsThereIsRoom) {
  const machine::Machine m = testing::toy_machine(24);
  for (uint32_t block_size : {1U, 4U, 16U})
    for (const auto& [m_parts, k_parts] : {std::pair{1U, 1U}, {2U, 3U}, {4U, 5U}, {7U, 1U}})
      for (uint64_t seed : {1U, 2U, 3U})
        for (PatternKind kind : {PatternKind::random, PatternKind::banded, PatternKind::power_law}) {
          SCOPED_TRACE(fmt::format("b = {}, {} × {} parts, seed {}, kind {}", block_size, m_parts, k_parts,
                                   seed, static_cast<int>(kind)));
          const Pattern pattern = generated(kind, 130, 151, block_size, 0.2, seed).pattern;
          const DynamicShape shape{130, 151, 8, block_size, pattern.blocks(), {}};
          const auto share = static_cast<uint32_t>(pattern.blocks() / (m_parts * k_parts));
          expect_well_encoded(pattern, shape,
                              DynamicGrid(shape, {m_parts, k_parts, 1, share + share / 3 + 1}, m));
        }
}

TEST(TiledDynamic, AllBlocksInOnePartitionTakeAllSteps) {
  const machine::Machine m = testing::toy_machine(16);
  const SparseMatrix matrix = cornered_matrix(256, 256, 4, 16 * 16);
  const DynamicShape shape{256, 256, 8, 4, 256, {}};
  const DynamicGrid grid(shape, {4, 4, 1, 16}, m);
  expect_well_encoded(matrix.pattern, shape, grid);
  EXPECT_EQ(encode(matrix.pattern, shape, grid).steps, 15U);
}

TEST(TiledDynamic, SaysByHowMuchAPatternDoesNotFit) {
  const machine::Machine m = testing::toy_machine(4);
  const Pattern pattern = random_matrix(64, 64, 4, 0.25).pattern;
  const DynamicShape shape{64, 64, 8, 4, pattern.blocks() - 5, {}};
  const DynamicGrid grid(shape, {2, 2, 1, static_cast<uint32_t>(pattern.blocks())}, m);
  EXPECT_USAGE_ERROR(
      fmt::format("has {} blocks, 5 more than the capacity of {}", pattern.blocks(), shape.capacity),
      encode(pattern, shape, grid));
  EXPECT_USAGE_ERROR("does not go into a product planned for 64 × 64",
                     encode(random_matrix(64, 60, 4).pattern, shape, grid));
  const DynamicShape roomy{64, 64, 8, 4, pattern.blocks(), {}};
  DynamicGrid narrow(roomy, {2, 2, 1, static_cast<uint32_t>(pattern.blocks())}, m);
  narrow.bucket_words = 20;
  EXPECT_ERROR(fmt::format("of the pattern's {} blocks find no room", pattern.blocks()),
               encode(pattern, roomy, narrow));
}

TEST(TiledDynamic, OneProgramServesEveryPatternAtRealSize) {
  const machine::Machine bow = machine::find("bow");
  const uint32_t size = 1024;
  for (uint32_t block_size : {1U, 16U}) {
    const SparseMatrix random = random_matrix(size, size, block_size, 1.0 / 16);
    const ProductProblem problem = dynamic_problem(64, {Type::f16, Type::f16}, random.pattern.blocks());
    bound::BoundProduct product(random, problem, bow);
    const auto expect_named = [&](const char* what, const SparseMatrix& matrix) {
      SCOPED_TRACE(fmt::format("b = {}, {}", block_size, what));
      expect_right(product, matrix);
    };
    expect_named("random", random);
    expect_named("banded", generated(PatternKind::banded, size, size, block_size, 1.0 / 20, 1));
    expect_named("power law", generated(PatternKind::power_law, size, size, block_size, 1.0 / 20, 1));
    // All non-zeros in few partitions, as many as the resulting steps can run in reasonable time.
    expect_named("worst",
                 cornered_matrix(size, size, block_size, random.pattern.blocks() / (block_size > 1 ? 1 : 8)));
  }
}

/// A plan's cost is that of its program with the random pattern that it counted.
TEST(TiledDynamic, PlansKeepTheirWord) {
  const machine::Machine bow = machine::find("bow");
  for (Planner planner : {Planner::best, Planner::vendor})
    for (uint32_t block_size : {1U, 8U}) {
      SCOPED_TRACE(fmt::format("b = {}, planner {}", block_size, static_cast<int>(planner)));
      const GeneratedMatrix typical{PatternKind::random, 1024, 1024, 1.0 / 16, block_size, 1};
      const Pattern pattern = sparse::generate_pattern(typical);
      ProductProblem problem = dynamic_problem(64, {Type::f16, Type::f16}, pattern.blocks());
      problem.planner = planner;
      const bound::BoundProduct product = planned(pattern, problem, bow);
      EXPECT_EQ(product.tile_plan().steps, product.steps());
      expect_kept(product);
      const engine::Engine engine(compiler::compile(*product.executable().program, bow));
      EXPECT_ERROR("a dry run cannot follow", engine.run({}, {.dry = true}));
    }
}

TEST(TiledDynamic, TheFreePlannerIsNeverSlowerThanTheVendors) {
  const machine::Machine bow = machine::find("bow");
  test::EveryNth some(3);
  for (const auto& [size, block_size, density] : {std::tuple{1024U, 8U, 1.0 / 16}, {257U, 1U, 0.1}})
    for (uint32_t n : {3U, 64U}) {
      if (!some.takes()) continue;
      const Pattern pattern = random_matrix(size, size, block_size, density).pattern;
      ProductProblem problem = dynamic_problem(n, {Type::f16, Type::f16}, pattern.blocks());
      const double free = plan_tile_product(pattern, problem, bow).chosen.total();
      problem.planner = Planner::vendor;
      EXPECT_LE(free, plan_tile_product(pattern, problem, bow).chosen.total()) << size << ", n = " << n;
    }
}

TEST(TiledDynamic, TakesEmptyShapesAndSingleElements) {
  for (const auto& [m, k, n] :
       {std::array{0U, 5U, 3U}, {5U, 0U, 3U}, {5U, 4U, 0U}, {1U, 1U, 1U}, {1U, 40U, 1U}})
    for (uint32_t block_size : {1U, 8U}) {
      SCOPED_TRACE(fmt::format("{} × {} × {}, b = {}", m, k, n, block_size));
      const SparseMatrix matrix = random_matrix(m, k, block_size, 0.5);
      const ProductProblem problem = dynamic_problem(n, {}, matrix.pattern.blocks());
      bound::BoundProduct product(matrix, problem, testing::toy_machine(4));
      expect_right(product, matrix);
    }
}

TEST(TiledDynamic, IsRightForEveryGridAndRandomPatterns) {
  constexpr PatternKind kKinds[] = {PatternKind::random, PatternKind::banded, PatternKind::power_law};
  for (uint64_t seed = 1; seed <= 90; ++seed) {
    base::RandomSequence random{base::RandomStream(seed)};
    const uint32_t block_size = std::array{1U, 4U, 8U, 16U}[random.below(4)];
    const uint32_t m = 1 + random.below(150);
    const uint32_t k = 1 + random.below(150);
    const SparseMatrix matrix =
        generate({kKinds[random.below(3)], m, k, 0.02 + 0.3 * random.below(100) / 100, block_size, seed});
    const TiledNumbers& numbers = kNumbers[random.below(3)];
    ProductProblem problem{.n = 1 + random.below(50),
                           .type = numbers.operands,
                           .partials = numbers.partials,
                           .product = kProducts[random.below(3)],
                           .capacity = matrix.pattern.blocks() + random.below(10)};
    const ForcedKnobs grid = {{"m_parts", 1 + random.below(std::min(4U, matrix.pattern.block_rows()))},
                              {"k_parts", 1 + random.below(std::min(4U, matrix.pattern.block_cols()))},
                              {"n_parts", 1 + random.below(std::min(3U, problem.n))}};
    const machine::Machine machine = random.below(2) == 0 ? testing::toy_machine(48, 1 << 20)
                                                          : testing::toy_machine_with_regions(48, 1 << 20);
    if (random.below(2) == 0) problem.rounding = seed;
    bound::BoundProduct product(matrix, problem, machine, grid);
    SCOPED_TRACE(fmt::format("seed {}: {} of {} × {}, n = {}, b = {}, {} {}, rounded {}: {}", seed,
                             name_of(problem.product), m, k, problem.n, block_size, name_of(problem.type),
                             name_of(problem.partials), problem.rounding.has_value(),
                             product.chosen().partition));
    expect_right(product, matrix, seed);
  }
}

/// One encoding serves the three products of a training step.
TEST(TiledDynamicGradients, TakeTheForwardProductsBuckets) {
  const machine::Machine m = testing::toy_machine(24);
  const Pattern pattern = random_matrix(96, 80, 4, 0.2).pattern;
  ProductProblem problem{.n = 12, .capacity = pattern.blocks()};
  const bound::BoundProduct forward = planned(pattern, problem, m);
  for (ProductKind gradient : kGradients) {
    problem.product = gradient;
    const bound::BoundProduct product = planned(pattern, problem, m, {}, &forward.tile_plan());
    EXPECT_EQ(product.tile_plan().partition, forward.tile_plan().partition);
    EXPECT_EQ(product.tile_program().dynamic->encoding.metadata,
              forward.tile_program().dynamic->encoding.metadata);
    EXPECT_EQ(product.tile_program().block_order, forward.tile_program().block_order);
    const auto boxes_of_values = [](const bound::BoundProduct& p) {
      return boxes_of(p.executable().program->variable(p.tile_program().operands.values.variable).mapping);
    };
    EXPECT_EQ(boxes_of_values(product), boxes_of_values(forward));
  }
}

TEST(TiledDynamicGradients, AreRightOnBow) {
  const machine::Machine bow = machine::find("bow");
  test::EveryNth some(5);
  for (uint32_t block_size : {1U, 4U, 16U})
    for (ProductKind gradient : kGradients) {
      if (!some.takes()) continue;
      const SparseMatrix matrix = random_matrix(512, 768, block_size, 1.0 / 16);
      const ProductProblem problem{.n = 96,
                                   .type = Type::f16,
                                   .partials = Type::f32,
                                   .product = gradient,
                                   .capacity = matrix.pattern.blocks()};
      bound::BoundProduct product(matrix, problem, bow);
      SCOPED_TRACE(fmt::format("{}, b = {}: {}", name_of(gradient), block_size, product.chosen().partition));
      expect_right(product, matrix);
      expect_right(product, generate({PatternKind::power_law, 512, 768, 1.0 / 20, block_size, 2}));
    }
}

}  // namespace
}  // namespace tessera::ops
