// The products of a layer in one program with the update of its weights: each correct and at its plan's cost,
// with W, dW and momentum in one place.
#include "ops/layer_on_tiles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

ProductProblem problem_of(uint32_t n, const TiledNumbers& numbers, bool dense = false) {
  return {.n = n, .type = numbers.operands, .partials = numbers.partials, .dense = dense};
}

/// Temporaries that hold another copy of the blocks of W.
int64_t copies_of_w(const LayerStep& layer) {
  return std::ranges::count_if(layer.executable().program->variables(), [](const program::Variable& v) {
    return v.name == "W.blocks" || v.name == "W.copies";
  });
}

TEST(LayerOnTiles, IsRightAtItsPlansCost) {
  for (uint32_t tiles : {1U, 7U, 24U})
    for (uint32_t block_size : {1U, 4U, 16U})
      for (uint32_t n : {1U, 20U})
        for (const TiledNumbers& numbers : kNumbers)
          for (bool dense : {false, true}) {
            SCOPED_TRACE(fmt::format("{} tiles, b = {}, n = {}, {} {}, dense {}", tiles, block_size, n,
                                     name_of(numbers.operands), name_of(numbers.partials), dense));
            const machine::Machine m = testing::toy_machine(tiles, 1 << 20);
            LayerStep layer(random_matrix(61, 45, block_size), problem_of(n, numbers, dense), m);
            layer.expect_right();
            expect_promised(layer, m);
          }
}

TEST(LayerOnTiles, OfADynamicWeightIsRight) {
  for (uint32_t tiles : {1U, 7U, 24U})
    for (uint32_t block_size : {1U, 4U})
      for (const TiledNumbers& numbers : kNumbers) {
        SCOPED_TRACE(fmt::format("{} tiles, b = {}, {} {}", tiles, block_size, name_of(numbers.operands),
                                 name_of(numbers.partials)));
        const machine::Machine m = testing::toy_machine(tiles, 1 << 20);
        const SparseMatrix matrix = random_matrix(61, 45, block_size);
        ProductProblem problem = problem_of(20, numbers);
        problem.capacity = matrix.pattern.blocks() + 3;
        LayerStep layer(matrix, problem, m);
        layer.expect_right();
      }
}

TEST(LayerOnTiles, IsRightOnBow) {
  const machine::Machine bow = machine::find("bow");
  for (uint32_t block_size : {1U, 16U})
    for (bool dense : {false, true}) {
      SCOPED_TRACE(fmt::format("b = {}, dense {}", block_size, dense));
      LayerStep layer(random_matrix(512, 768, block_size, 1.0 / 16),
                      problem_of(96, {Type::f16, Type::f32}, dense), bow);
      layer.expect_right();
      expect_promised(layer, bow);
    }
}

/// In the forward product's partition dX reads the blocks in place.
TEST(LayerOnTiles, BlocksOfWStayWhereTheyAre) {
  const machine::Machine m = testing::toy_machine_with_regions(24, 1 << 20);
  for (uint32_t block_size : {1U, 4U, 16U}) {
    LayerStep layer(random_matrix(128, 96, block_size, 0.3), problem_of(2, {}), m,
                    {{"col_parts", 1}, {"bands", 4}, {"band_tiles", 6}});
    EXPECT_TRUE(test::says(layer.plans().dx.chosen.partition, "mirrored"))
        << to_string(layer.plans().dx.candidates);
    EXPECT_EQ(copies_of_w(layer), 0);
    layer.expect_right();
    expect_promised(layer, m);
  }
}

/// Every partition of the forward product, mirrored by its gradients.
TEST(LayerOnTiles, DenseGradientsMirrorAnyPartition) {
  const machine::Machine m = testing::toy_machine(60, 1 << 20);
  for (int64_t m_parts : {1, 3})
    for (int64_t k_parts : {1, 2, 5})
      for (int64_t n_parts : {1, 2, 4})
        for (const TiledNumbers& numbers : kNumbers) {
          SCOPED_TRACE(
              fmt::format("m {} k {} n {}, {}", m_parts, k_parts, n_parts, name_of(numbers.operands)));
          LayerStep layer(random_matrix(61, 95, 1), problem_of(9, numbers, true), m,
                          {{"m_parts", m_parts}, {"k_parts", k_parts}, {"n_parts", n_parts}});
          EXPECT_EQ(layer.plans().dw.layouts.values.mapping.size(),
                    layer.plans().forward.layouts.values.mapping.size());
          layer.expect_right();
          expect_promised(layer, m);
        }
}

TEST(LayerOnTiles, ASlicedDenseProductHasNoMirroredGradients) {
  const machine::Machine m = testing::toy_machine(4);
  const Pattern pattern = random_matrix(61, 45, 1).pattern;
  ProductProblem problem = problem_of(9, {}, true);
  const TileProductPlan forward = plan_tile_product(pattern, problem, m, {{"n_slices", 3}});
  problem.product = ProductKind::input_gradient;
  EXPECT_USAGE_ERROR("plan it with m_slices=1 and n_slices=1",
                     plan_tile_product(pattern, problem, m, {}, &forward));
}

TEST(LayerOnTiles, ARangeOfTilesMustExistAndBeginWithAPair) {
  const machine::Machine bow = machine::find("bow");
  program::Program program;
  const auto message = [&](program::TileId first, uint32_t tiles) {
    return test::error_of<UsageError>([&] { Builder(program, bow, first, tiles); });
  };
  EXPECT_TRUE(test::says(message(3, 10),
                         "a range must begin at an even tile, not at 3; give each chip an even number"));
  EXPECT_TRUE(test::says(message(1470, 3), "cannot be built on tiles 1470 to 1473 of 'bow', which has 1472"));
  EXPECT_TRUE(test::says(message(4, 0), "cannot be built on tiles 4 to 4"));
  EXPECT_EQ(Builder(program, bow, 1470, 2).tile(1), 1471U);
}

/// Two layers in one program, each on its own tiles.
TEST(LayerOnTiles, TwoStandSideBySideOnBow) {
  const machine::Machine bow = machine::find("bow");
  machine::Machine part = bow;
  part.tiles = 736;
  LayerStep sparse(random_matrix(384, 512, 16, 1.0 / 8), problem_of(48, {Type::f16, Type::f16}), part);
  LayerStep dense(random_matrix(256, 384, 1, 0.3), problem_of(32, {}, true), part);
  program::Program program;
  const program::StepId first = sparse.add_to(Builder(program, bow, 0, part.tiles));
  const program::StepId second = dense.add_to(Builder(program, bow, part.tiles, part.tiles));
  program.set_main(program.sequence({first, second}));
  for (const program::ComputeSet& set : program.compute_sets())
    for (const program::VertexGroup& group : set.groups)
      EXPECT_FALSE(group.first_tile < part.tiles && group.first_tile + group.tiles > part.tiles) << set.name;
  const auto executable = compiler::compile(std::move(program), bow);
  std::vector<engine::Binding> bindings = sparse.bind();
  const std::vector<engine::Binding>& others = dense.bind();
  bindings.insert(bindings.end(), others.begin(), others.end());
  const engine::Profile profile = engine::Engine(executable).run(bindings);
  sparse.check();
  dense.check();
  program::PhaseTimes promised = sparse.update_cycles();
  promised += dense.update_cycles();
  for (const LayerStep* layer : {&sparse, &dense})
    for (const TileProductPlan* plan : {&layer->plans().forward, &layer->plans().dx, &layer->plans().dw})
      promised += plan->chosen.seconds.scaled(bow.clock_hz);
  EXPECT_NEAR(profile.cycles.total(), promised.total(), 1e-9 * promised.total());
}

}  // namespace
}  // namespace tessera::ops
