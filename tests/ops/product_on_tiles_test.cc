// Products between operands of any layout and mapping, with bias and activation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ops/run_on_tiles.h"
#include "sparse/blocks/packed_blocks.h"
#include "support/activations.h"
#include "support/allocations.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

enum class Kind : uint8_t { statically_sparse, dynamically_sparse, dense };
constexpr Kind kKinds[] = {Kind::statically_sparse, Kind::dynamically_sparse, Kind::dense};

ProductProblem problem_of(Kind kind, const Pattern& pattern, uint32_t n, const TiledNumbers& numbers = {}) {
  ProductProblem problem{.n = n, .type = numbers.operands, .partials = numbers.partials};
  problem.dense = kind == Kind::dense;
  if (kind == Kind::dynamically_sparse) problem.capacity = pattern.blocks() + 2;
  return problem;
}

/// Expects Y = activation(W·X + bias), or dX likewise, element by element in float64.
void expect_finished(const SparseMatrix& matrix, const ProductProblem& problem, const machine::Machine& m,
                     const ForcedKnobs& force = {}) {
  bound::BoundProduct product(matrix, problem, m, force);
  ProductRun run(matrix, problem);
  const std::vector<float> found = run.execute(product);
  const bool is_dx = problem.product == ProductKind::input_gradient;
  const SparseMatrix left = is_dx ? sparse::transpose(run.w()) : run.w();
  const std::vector<float> full = sparse::to_dense(left);
  const std::vector<float>& right = is_dx ? run.y() : run.x();
  const double rounding = epsilon_of(problem.type) + epsilon_of(problem.partials);
  for (uint32_t r = 0; r < left.pattern.rows; ++r)
    for (uint32_t j = 0; j < problem.n; ++j) {
      double sum = problem.bias ? run.bias()[r] : 0;
      double magnitude = std::abs(sum);
      for (uint32_t c = 0; c < left.pattern.cols; ++c) {
        const double term = double{full[uint64_t{r} * left.pattern.cols + c]} * right[c * problem.n + j];
        sum += term;
        magnitude += std::abs(term);
      }
      const double expected = test::activated(problem.activation, sum);
      ASSERT_NEAR(found[uint64_t{r} * problem.n + j], expected, 4 * rounding * magnitude + 1e-6)
          << "(" << r << ", " << j << ")";
    }
  if (problem.capacity) return;  // a random pattern was planned for
  expect_kept(product);
}

TEST(ProductOnTiles, AddsABiasAndActivates) {
  for (uint32_t tiles : {1U, 5U, 24U})
    for (Kind kind : kKinds)
      for (const TiledNumbers& numbers : kNumbers)
        for (Activation activation : test::kActivations)
          for (bool bias : {false, true})
            for (ProductKind product : {ProductKind::forward, ProductKind::input_gradient}) {
              SCOPED_TRACE(fmt::format("{} tiles, kind {}, {} {}, activation {}, bias {}, {}", tiles,
                                       static_cast<int>(kind), name_of(numbers.operands),
                                       name_of(numbers.partials), static_cast<int>(activation), bias,
                                       name_of(product)));
              const SparseMatrix matrix = random_matrix(61, 45, 4);
              ProductProblem problem = problem_of(kind, matrix.pattern, 7, numbers);
              problem.activation = activation;
              problem.bias = bias;
              problem.product = product;
              expect_finished(matrix, problem, testing::toy_machine(tiles));
            }
}

TEST(ProductOnTiles, AddsABiasToEverySliceOfADenseProduct) {
  const SparseMatrix matrix = random_matrix(61, 45, 1, 0.5);
  for (int64_t m : {1, 3})
    for (int64_t k : {1, 2})
      for (int64_t n : {1, 2})
        for (const char* sliced : {"m_slices", "n_slices"}) {
          SCOPED_TRACE(fmt::format("m {} k {} n {}, {}", m, k, n, sliced));
          ProductProblem problem = problem_of(Kind::dense, matrix.pattern, 9);
          problem.bias = true;
          problem.activation = Activation::relu;
          expect_finished(matrix, problem, testing::toy_machine(12),
                          {{"m_parts", m}, {"k_parts", k}, {"n_parts", n}, {sliced, 3}});
        }
}

TEST(ProductOnTiles, AnSddmmTakesNoBias) {
  const Pattern pattern = random_matrix(8, 8, 1).pattern;
  ProductProblem problem = problem_of(Kind::statically_sparse, pattern, 3);
  problem.product = ProductKind::sddmm;
  problem.bias = true;
  EXPECT_USAGE_ERROR("an SDDMM takes neither a bias nor an activation",
                     plan_tile_product(pattern, problem, testing::toy_machine(2)));
}

/// Row-major matrices, with mappings that no plan would choose.
std::vector<OperandLayout> odd_layouts(uint32_t rows, uint32_t cols, uint32_t tiles) {
  std::vector<OperandLayout> layouts = {
      matrix_layout(rows, cols, program::map_to_tile(rows, cols, tiles - 1)),
      matrix_layout(rows, cols, program::map_rows_to_tiles(rows, cols))};
  for (program::MappedBox& row : layouts[1].mapping) row.tile = (row.tile * 7) % tiles;
  OperandLayout columns{rows, cols};
  for (uint32_t c = 0; c < cols; ++c) columns.mapping.push_back({{0, rows, c, 1}, c % tiles});
  layouts.push_back(columns);
  OperandLayout quarters{rows, cols};
  const uint32_t r = rows / 2;
  const uint32_t c = cols / 3;
  quarters.mapping = {{{0, r, 0, c}, 0},
                      {{r, rows - r, 0, c + 1}, 1 % tiles},
                      {{0, r, c, cols - c}, 2 % tiles},
                      {{r, rows - r, c + 1, cols - c - 1}, 3 % tiles}};
  layouts.push_back(quarters);
  return layouts;
}

TEST(ProductOnTiles, TakesAndLeavesOperandsWhereverTheyLie) {
  constexpr uint32_t kN = 9;
  const SparseMatrix matrix = random_matrix(61, 45, 4);
  for (uint32_t tiles : {1U, 6U, 24U}) {
    const machine::Machine m = testing::toy_machine(tiles, 1 << 20);
    const std::vector<OperandLayout> xs = odd_layouts(45, kN, tiles);
    const std::vector<OperandLayout> ys = odd_layouts(61, kN, tiles);
    for (Kind kind : kKinds)
      for (ProductKind product : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm})
        for (size_t i = 0; i < xs.size(); ++i) {
          if (kind == Kind::dense && product == ProductKind::sddmm) continue;  // X is stored as its transpose
          SCOPED_TRACE(fmt::format("{} tiles, kind {}, {}, layout {}", tiles, static_cast<int>(kind),
                                   name_of(product), i));
          ProductProblem problem = problem_of(kind, matrix.pattern, kN);
          problem.product = product;
          const LayoutChoices layouts = {.x = {xs[i]}, .y = {ys[(i + 1) % ys.size()]}};
          bound::BoundProduct placed(matrix, problem, m, {}, nullptr, {.tiles = layouts});
          EXPECT_EQ(
              placed.executable().program->variable(placed.tile_program().operands.x.variable).mapping.size(),
              xs[i].mapping.size());
          EXPECT_TRUE(ProductRun(matrix, problem).run(placed).verified);
          // Many pieces of a few bytes: their alignment has a larger effect.
          if (kind != Kind::dynamically_sparse) expect_kept(placed, 1.15);
        }
  }
}

/// Y of one layer is X of the next.
TEST(ProductOnTiles, ADenseProductTakesWhatAnotherLeaves) {
  const machine::Machine m = testing::toy_machine(24, 1 << 20);
  const SparseMatrix first = random_matrix(64, 48, 1, 0.5);
  const SparseMatrix second = random_matrix(33, 64, 1, 0.5);
  const ProductProblem problem{.n = 10, .dense = true};
  const TileProductPlan left =
      plan_tile_product(first.pattern, problem, m, {{"m_parts", 4}, {"k_parts", 3}, {"n_parts", 2}});
  bound::BoundProduct right(second, problem, m, {{"k_parts", 2}}, nullptr,
                            {.tiles = {.x = {left.layouts.y}}});
  EXPECT_TRUE(ProductRun(second, problem).run(right).verified);
  expect_kept(right);
}

/// W as another partition packs it.
TEST(ProductOnTiles, TakesAndLeavesPackedValuesInAnotherOrder) {
  const machine::Machine m = testing::toy_machine(24, 1 << 20);
  const SparseMatrix matrix = random_matrix(61, 45, 4);
  ProductProblem problem = problem_of(Kind::statically_sparse, matrix.pattern, 9);
  const auto plan_with = [&](const ForcedKnobs& force) {
    return plan_tile_product(matrix.pattern, problem, m, force);
  };
  const OperandLayout other = plan_with({{"col_parts", 1}, {"bands", 5}, {"band_tiles", 2}}).layouts.values;
  const TileProductPlan forward = plan_with({{"col_parts", 2}, {"bands", 2}, {"band_tiles", 3}});
  ASSERT_NE(other.blocks, forward.layouts.values.blocks);
  for (ProductKind product : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm}) {
    SCOPED_TRACE(name_of(product));
    problem.product = product;
    bound::BoundProduct reordered(matrix, problem, m, {}, &forward, {.tiles = {.values = {other}}});
    EXPECT_EQ(reordered.tile_program().block_order, other.blocks);
    EXPECT_TRUE(ProductRun(matrix, problem).run(reordered).verified);
    expect_kept(reordered);
  }
}

TEST(ProductOnTiles, ChoosesTheCheapestOfSeveralLayouts) {
  const machine::Machine m = testing::toy_machine(24, 1 << 20);
  const SparseMatrix matrix = random_matrix(64, 48, 1, 0.5);
  const ProductProblem problem{.n = 10, .dense = true};
  const TileProductPlan free = plan_tile_product(matrix.pattern, problem, m);
  const OperandLayout one_tile = matrix_layout(48, 10, program::map_to_tile(48, 10, 3));
  const auto plan_among = [&](std::vector<OperandLayout> x) {
    return plan_tile_product(matrix.pattern, problem, m, {}, nullptr, {.x = std::move(x)});
  };
  const TileProductPlan among = plan_among({one_tile, free.layouts.x});
  EXPECT_EQ(among.layouts.x.parts, free.layouts.x.parts);
  EXPECT_EQ(among.chosen.total(), free.chosen.total());
  EXPECT_GT(plan_among({one_tile}).chosen.total(), free.chosen.total());
}

OperandLayout transposed_layout(uint32_t rows, uint32_t cols, std::vector<program::MappedBox> mapping) {
  OperandLayout layout = matrix_layout(cols, rows, std::move(mapping));
  layout.transposed = true;
  return layout;
}

/// X and Y in the layout of frameworks, with a row for each sample.
TEST(ProductOnTiles, TakesAndLeavesOperandsStoredAsTheirTransposes) {
  constexpr uint32_t kN = 9;
  const SparseMatrix matrix = random_matrix(61, 45, 4);
  for (uint32_t tiles : {1U, 6U, 24U}) {
    const machine::Machine m = testing::toy_machine(tiles, 1 << 20);
    const LayoutChoices linear = {.x = {transposed_layout(45, kN, program::map_linearly(kN, 45, tiles))},
                                  .y = {transposed_layout(61, kN, program::map_linearly(kN, 61, tiles))}};
    const LayoutChoices one_tile = {.x = {transposed_layout(45, kN, program::map_to_tile(kN, 45, tiles - 1))},
                                    .y = {transposed_layout(61, kN, program::map_to_tile(kN, 61, 0))}};
    for (Kind kind : kKinds)
      for (ProductKind product : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm})
        for (const LayoutChoices& layouts : {linear, one_tile})
          for (const TiledNumbers& numbers : kNumbers) {
            SCOPED_TRACE(fmt::format("{} tiles, kind {}, {}, {}", tiles, static_cast<int>(kind),
                                     name_of(product), name_of(numbers.operands)));
            ProductProblem problem = problem_of(kind, matrix.pattern, kN, numbers);
            problem.product = product;
            bound::BoundProduct transposing(matrix, problem, m, {}, nullptr, {.tiles = layouts});
            EXPECT_TRUE(transposing.tile_program().layouts.x.transposed);
            EXPECT_TRUE(ProductRun(matrix, problem).run(transposing).verified);
            if (kind != Kind::dynamically_sparse) expect_kept(transposing, 1.15);
          }
  }
}

TEST(ProductOnTiles, EqualProductsArePlannedOnce) {
  const machine::Machine chip = machine::find("gc200");
  const Pattern pattern = random_matrix(512, 512, 4).pattern;
  const ProductProblem problem{.n = 96};
  const auto chosen = [&](const LayoutChoices& layouts) {
    return plan_tile_product(pattern, problem, chip, {}, nullptr, layouts).layouts;
  };
  const auto lying = [&](uint32_t tiles) {
    return LayoutChoices{.x = {matrix_layout(512, 96, program::map_linearly(512, 96, tiles))}};
  };
  for (const LayoutChoices& layouts : {LayoutChoices(), lying(64)}) {
    const uint64_t once = test::allocations_in([&] { chosen(layouts); });
    EXPECT_LT(test::allocations_in([&] { chosen(layouts); }), once / 10);
  }
  EXPECT_EQ(chosen(lying(64)).x, lying(64).x[0]);
  EXPECT_EQ(chosen(lying(65)).x, lying(65).x[0]);
}

/// A forward product and both gradients in its partition: their seconds, and the bytes of the fullest tile.
std::pair<double, double> all_products_in(const Pattern& pattern, ProductProblem problem,
                                          const machine::Machine& m, const ForcedKnobs& force) {
  const TileProductPlan forward = plan_tile_product(pattern, problem, m, force);
  double seconds = forward.chosen.total();
  uint64_t bytes = forward.chosen.max_tile_bytes;
  for (const ProductKind product : {ProductKind::input_gradient, ProductKind::sddmm}) {
    problem.product = product;
    const PlanCandidate gradient = plan_tile_product(pattern, problem, m, {}, &forward).chosen;
    seconds += gradient.total();
    bytes = std::max(bytes, gradient.max_tile_bytes);
  }
  return {seconds, static_cast<double>(bytes)};
}

TEST(ProductOnTiles, APartitionForGradientsTooTakesLessMemoryAndHardlyMoreTime) {
  const machine::Machine chip = machine::find("gc200");
  const Pattern pattern = sparse::full_pattern(1024, 4096, sparse::kDenseBlockSize);
  const ProductProblem problem{.n = 1024, .type = Type::f16, .partials = Type::f16, .dense = true};
  const auto [seconds, bytes] = all_products_in(pattern, problem, chip, {{"m_slices", 1}, {"n_slices", 1}});
  const std::vector<ForcedKnobs> all = knobs_with_gradients(pattern, problem, chip);
  ASSERT_FALSE(all.empty());
  for (const ForcedKnobs& knobs : all) {
    const auto [own_seconds, own_bytes] = all_products_in(pattern, problem, chip, knobs);
    EXPECT_LT(own_seconds, 1.05 * seconds);
    EXPECT_LT(own_bytes, 0.85 * bytes);
  }
}

TEST(ProductOnTiles, TransposesAtAPrice) {
  const machine::Machine m = testing::toy_machine(24, 1 << 20);
  const Pattern pattern = random_matrix(61, 45, 4).pattern;
  const ProductProblem problem{.n = 20};
  const auto seconds = [&](OperandLayout x) {
    return plan_tile_product(pattern, problem, m, {}, nullptr, {.x = {std::move(x)}}).chosen;
  };
  const PlanCandidate plain = seconds(matrix_layout(45, 20, program::map_linearly(45, 20, 24)));
  const PlanCandidate transposed = seconds(transposed_layout(45, 20, program::map_linearly(20, 45, 24)));
  EXPECT_EQ(plain.seconds[program::Phase::rearrange], 0);
  EXPECT_GT(transposed.seconds[program::Phase::rearrange], 0);
  EXPECT_GT(transposed.seconds[program::Phase::exchange], plain.seconds[program::Phase::exchange]);
}

}  // namespace
}  // namespace tessera::ops
