// Plans and programs of products, on the host and on tiles with memories of their own.
#include "ops/spmm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <array>
#include <cstring>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/advise.h"
#include "ops/tiled_spmm.h"
#include "report/verification.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

std::shared_ptr<const PackedWeight> pack(const SparseMatrix& matrix, Type type = Type::f32) {
  return std::make_shared<const PackedWeight>(
      matrix.pattern.block_size == 1 ? PackedWeight{sparse::PackedElements(matrix, type), false}
                                     : PackedWeight{sparse::PackedBlocks(matrix, type), false});
}

SparseMatrix random_matrix(uint32_t m, uint32_t k, uint32_t block_size, double density = 0.2) {
  return generate({PatternKind::random, m, k, density, block_size, 7});
}

TEST(SpmmPlan, UsesNoMoreTilesThanTheMachineHas) {
  for (uint32_t threads : {1U, 2U, 3U, 8U})
    for (uint32_t block_size : {1U, 4U, 16U})
      for (uint32_t n : {0U, 1U, 17U, 512U}) {
        const auto weight = pack(random_matrix(100, 90, block_size));
        const SpmmPlan plan = plan_spmm(*weight, {n}, machine::host(threads));
        EXPECT_LE(plan.tiles_used(), threads);
        EXPECT_EQ(plan.row_begin.front(), 0U);
        EXPECT_EQ(plan.col_begin.back(), n);
        EXPECT_TRUE(plan.chosen.rejected.empty());
      }
}

TEST(SpmmPlan, EveryRejectedCandidateSaysWhy) {
  const auto weight = pack(random_matrix(512, 512, 16));
  const SpmmPlan plan = plan_spmm(*weight, {64}, machine::host(2));
  size_t chosen = 0;
  for (const PlanCandidate& candidate : plan.candidates) chosen += candidate.rejected.empty() ? 1 : 0;
  EXPECT_EQ(chosen, 1U);
  EXPECT_GE(plan.candidates.size(), 2U);
}

TEST(SpmmPlan, TakesForcedKnobsAndRefusesUnknownOnes) {
  const auto weight = pack(random_matrix(512, 512, 16));
  const SpmmPlan plan = plan_spmm(*weight, {64}, machine::host(2), {{"row_parts", 2}, {"col_parts", 1}});
  EXPECT_EQ(plan.row_begin.size(), 3U);
  EXPECT_EQ(plan.col_begin.size(), 2U);
  const std::string message = test::error_of<UsageError>(
      [&] { plan_spmm(*weight, {64}, machine::host(2), {{"colour", 1}}); });
  EXPECT_TRUE(test::says(message, "no knob 'colour'"));
  EXPECT_TRUE(test::says(message, "row_parts"));
  for (const auto& [name, value] : {std::pair{"panel_cols", -1}, {"panel_cols", 0}, {"pack_x", 2}, {"tile_rows", 300}})
    EXPECT_TRUE(test::says(
        test::error_of<UsageError>([&, n = name, v = value] { plan_spmm(*weight, {64}, machine::host(2), {{n, v}}); }),
        fmt::format("{}={}: this knob takes", name, value)));
}

TEST(SpmmPlan, PredictsTheAccountOfTheExecutable) {
  for (uint32_t block_size : {1U, 4U, 16U}) {
    const machine::Machine host = machine::host(2);
    const auto weight = pack(random_matrix(300, 200, block_size));
    const SpmmProblem problem{70};
    const SpmmPlan plan = plan_spmm(*weight, problem, host);
    const engine::Engine engine(compiler::compile(build_spmm(weight, problem, plan, host).program, host));
    const engine::Profile profile = engine.run({}, {.dry = true});
    EXPECT_NEAR(profile.cycles.total() / host.clock_hz, plan.chosen.total(), 1e-9 * plan.chosen.total());
  }
}

TEST(SpmmPlan, GoesOutOfTheWayOfEmptyMatrices) {
  for (const auto& [m, k] : {std::pair{0U, 5U}, {5U, 0U}, {0U, 0U}, {1U, 1U}})
    for (uint32_t block_size : {1U, 8U})
      EXPECT_NO_THROW(plan_spmm(*pack(random_matrix(m, k, block_size)), {3}, machine::host(2)));
}

TEST(Advise, RanksEveryModeAndPrefersTheFastest) {
  const Pattern pattern = random_matrix(512, 512, 1, 0.01).pattern;
  const std::vector<Advice> advice = advise(pattern, Type::f32, 256, machine::host(2));
  EXPECT_EQ(advice.size(), 6U);
  EXPECT_FALSE(advice.front().is_dense);
  for (size_t i = 1; i < advice.size(); ++i) EXPECT_LE(advice[i - 1].seconds, advice[i].seconds);
  const Pattern full = random_matrix(512, 512, 1, 1.0).pattern;
  EXPECT_NE(advise(full, Type::f32, 256, machine::host(2)).front().block_size, 1U);
}

/// Runs a product on a tiled machine and compares it with float64.
report::Verification run_on_tiles(const SparseMatrix& matrix, uint32_t n, const machine::Machine& machine,
                                  const ForcedKnobs& force = {}) {
  const TiledSpmmPlan plan = plan_tiled_spmm(matrix.pattern, Type::f32, n, machine, force);
  SpmmProgram built = build_tiled_spmm(matrix.pattern, Type::f32, n, plan, machine);
  const SpmmVariables v = built.variables;
  const engine::Engine engine(compiler::compile(std::move(built.program), machine));
  std::vector<float> x(uint64_t{matrix.pattern.cols} * n);
  std::vector<float> y(uint64_t{matrix.pattern.rows} * n, NAN);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8;
  const int64_t block = int64_t{matrix.pattern.block_size} * matrix.pattern.block_size;
  const std::array<engine::Binding, 3> bindings = {
      {{v.values, const_cast<float*>(matrix.values.data()), block, 1}, {v.x, x.data(), n, 1}, {v.y, y.data(), n, 1}}};
  engine.run(bindings);
  return report::verify_product({matrix, {x.data(), n, 1}, {y.data(), n, 1}, n}, report::Extent::full, 1, 1);
}

TEST(TiledSpmm, IsRightOnMachinesOfAnyNumberOfTiles) {
  for (uint32_t tiles : {1U, 2U, 3U, 5U, 7U})
    for (uint32_t block_size : {1U, 4U, 16U})
      for (uint32_t n : {1U, 5U, 33U}) {
        SCOPED_TRACE(fmt::format("{} tiles, b = {}, n = {}", tiles, block_size, n));
        EXPECT_TRUE(run_on_tiles(random_matrix(61, 45, block_size), n, testing::toy_machine(tiles)).verified);
      }
}

TEST(TiledSpmm, IsRightForEveryGrid) {
  for (int64_t rows : {1, 2, 3})
    for (int64_t cols : {1, 2})
      EXPECT_TRUE(run_on_tiles(random_matrix(61, 45, 4), 9, testing::toy_machine(6),
                               {{"row_parts", rows}, {"col_parts", cols}}).verified);
}

TEST(TiledSpmm, KeepsItsWord) {
  for (uint32_t tiles : {1U, 3U, 7U, 16U})
    for (uint32_t block_size : {1U, 4U})
      for (Type type : {Type::f32, Type::f16})
        for (uint32_t n : {1U, 20U, 65U}) {
          SCOPED_TRACE(fmt::format("{} tiles, b = {}, {}, n = {}", tiles, block_size, name_of(type), n));
          const machine::Machine m = testing::toy_machine(tiles);
          const Pattern pattern = random_matrix(61, 45, block_size).pattern;
          const TiledSpmmPlan plan = plan_tiled_spmm(pattern, type, n, m);
          const engine::Engine engine(compiler::compile(build_tiled_spmm(pattern, type, n, plan, m).program, m));
          const engine::Profile profile = engine.run({}, {.dry = true});
          for (size_t phase = 0; phase < program::kPhases; ++phase)
            EXPECT_NEAR(profile.cycles.at[phase] / m.clock_hz, plan.chosen.seconds.at[phase], 1e-15);
          const uint64_t bytes = engine.executable().memory.max_tile_bytes;
          EXPECT_LE(bytes, plan.chosen.max_tile_bytes);
          EXPECT_GE(1.05 * static_cast<double>(bytes), static_cast<double>(plan.chosen.max_tile_bytes));
        }
}

TEST(TiledSpmm, NotFittingIsAnAnswer) {
  machine::Machine small = testing::toy_machine(2);
  small.tile_bytes = 5000;
  const Pattern pattern = random_matrix(256, 256, 16, 0.5).pattern;
  const TiledSpmmPlan plan = plan_tiled_spmm(pattern, Type::f32, 64, small);
  EXPECT_FALSE(plan.chosen.rejected.empty());
  const auto executable = compiler::compile(build_tiled_spmm(pattern, Type::f32, 64, plan, small).program, small);
  EXPECT_FALSE(executable->memory.fits());
  EXPECT_GE(executable->memory.max_tile_bytes, small.tile_bytes);
}

}  // namespace
}  // namespace tessera::ops
