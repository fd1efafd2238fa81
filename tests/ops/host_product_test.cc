// Plans and programs of products on the host.
#include "ops/sparse/host/spmm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "bound/product.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/sparse/host/advise.h"
#include "support/error_of.h"

namespace tessera::ops {
namespace {

std::shared_ptr<const PackedWeight> pack(const SparseMatrix& matrix, Type type = Type::f32) {
  return std::make_shared<const PackedWeight>(matrix.pattern.block_size == 1
                                                  ? PackedWeight{sparse::PackedElements(matrix, type), false}
                                                  : PackedWeight{sparse::PackedBlocks(matrix, type), false});
}

SparseMatrix random_matrix(uint32_t m, uint32_t k, uint32_t block_size, double density = 0.2) {
  return generate({PatternKind::random, m, k, density, block_size, 7});
}

Product product_of(bool transpose) { return transpose ? Product::input_gradient : Product::forward; }

TEST(SpmmPlan, UsesNoMoreTilesThanTheMachineHas) {
  for (uint32_t threads : {1U, 2U, 3U, 8U})
    for (uint32_t block_size : {1U, 4U, 16U})
      for (uint32_t n : {0U, 1U, 17U, 512U}) {
        const auto weight = pack(random_matrix(100, 90, block_size));
        const HostPlan plan = plan_host_product(*weight, {.n = n}, machine::host(threads));
        EXPECT_LE(plan.tiles_used(), threads);
        EXPECT_EQ(plan.partition.row_begin.front(), 0U);
        EXPECT_EQ(plan.partition.col_begin.back(), n);
        EXPECT_TRUE(plan.chosen.rejected.empty());
      }
}

/// The program's scratch has equal rows, of whole cache lines.
TEST(SpmmPlan, CountsTheScratchOfItsProgram) {
  for (uint32_t threads : {1U, 2U, 3U})
    for (uint32_t block_size : {1U, 4U, 16U})
      for (Product product : {Product::forward, Product::input_gradient, Product::sddmm})
        for (uint32_t n : {1U, 17U, 512U}) {
          SCOPED_TRACE(
              fmt::format("{} threads, b = {}, {}, n = {}", threads, block_size, name_of(product), n));
          const machine::Machine host = machine::host(threads);
          const auto weight = pack(random_matrix(100, 90, block_size));
          const ProductProblem problem{.n = n, .product = product};
          const HostPlan plan = plan_host_product(*weight, problem, host);
          const HostProgram built = build_host_program(weight, problem, plan, host);
          uint64_t scratch = 0;
          for (const program::Variable& v : built.program.variables())
            if (v.role == program::Role::temporary) scratch += v.bytes();
          EXPECT_LE(plan.chosen.max_tile_bytes, scratch);
          if (plan.tiles_used() == 1) {
            EXPECT_GE(plan.chosen.max_tile_bytes + 60, scratch);
          }
        }
}

TEST(SpmmPlan, EveryRejectedCandidateSaysWhy) {
  const auto weight = pack(random_matrix(512, 512, 16));
  const HostPlan plan = plan_host_product(*weight, {.n = 64}, machine::host(2));
  size_t chosen = 0;
  for (const PlanCandidate& candidate : plan.candidates) chosen += candidate.rejected.empty() ? 1 : 0;
  EXPECT_EQ(chosen, 1U);
  EXPECT_GE(plan.candidates.size(), 2U);
}

TEST(SpmmPlan, TakesForcedKnobsAndRefusesUnknownOnes) {
  const auto weight = pack(random_matrix(512, 512, 16));
  const HostPlan plan =
      plan_host_product(*weight, {.n = 64}, machine::host(2), {{"row_parts", 2}, {"col_parts", 1}});
  EXPECT_EQ(plan.partition.row_begin.size(), 3U);
  EXPECT_EQ(plan.partition.col_begin.size(), 2U);
  const std::string message = test::error_of<UsageError>([&] {
    plan_host_product(*weight, {.n = 64}, machine::host(2), {{"colour", 1}});
  });
  EXPECT_TRUE(test::says(message, "no knob 'colour'"));
  EXPECT_TRUE(test::says(message, "row_parts"));
  for (const auto& [name, value] :
       {std::pair{"panel_cols", -1}, {"panel_cols", 0}, {"copy_x", 2}, {"micro_rows", 300}})
    EXPECT_TRUE(test::says(test::error_of<UsageError>([&, n = name, v = value] {
                             plan_host_product(*weight, {.n = 64}, machine::host(2), {{n, v}});
                           }),
                           fmt::format("{}={}: this knob takes", name, value)));
}

TEST(SpmmPlan, PredictsTheAccountOfTheExecutable) {
  for (uint32_t block_size : {1U, 4U, 16U}) {
    const machine::Machine host = machine::host(2);
    const auto weight = pack(random_matrix(300, 200, block_size));
    const ProductProblem problem{.n = 70};
    const HostPlan plan = plan_host_product(*weight, problem, host);
    const engine::Engine engine(
        compiler::compile(build_host_program(weight, problem, plan, host).program, host));
    const engine::Profile profile = engine.run({}, {.dry = true});
    EXPECT_NEAR(profile.cycles.total() / host.clock_hz, plan.chosen.total(), 1e-9 * plan.chosen.total());
  }
}

// A dynamic weight's plan and account know only the capacity.
TEST(SpmmPlan, PredictsTheAccountOfTransposesAndDynamicWeights) {
  for (uint32_t block_size : {4U, 16U})
    for (const bool is_dynamic : {false, true})
      for (const bool transpose : {false, true})
        for (uint32_t n : {3U, 70U}) {
          const machine::Machine host = machine::host(2);
          const SparseMatrix matrix = random_matrix(300, 200, block_size);
          const uint64_t capacity = matrix.pattern.blocks() + 7;
          auto weight = std::make_shared<PackedWeight>(
              PackedWeight{is_dynamic ? sparse::PackedBlocks(matrix.pattern, Type::f32, capacity)
                                      : sparse::PackedBlocks(matrix.pattern, Type::f32),
                           false});
          ProductProblem problem{.n = n, .product = product_of(transpose)};
          const HostPlan plan = plan_host_product(*weight, problem, host);
          HostProgram built = build_host_program(weight, problem, plan, host);
          EXPECT_EQ(built.index.size(), is_dynamic ? 3U : 0U);
          const engine::Engine engine(compiler::compile(std::move(built.program), host));
          const engine::Profile profile = engine.run({}, {.dry = true});
          EXPECT_NEAR(profile.cycles.total() / host.clock_hz, plan.chosen.total(),
                      1e-9 * plan.chosen.total());
        }
}

// A dynamic weight's plan is for its capacity, whatever it holds.
TEST(SpmmPlan, PredictsTheAccountOfDynamicAndTransposedElements) {
  const machine::Machine host = machine::host(2);
  for (const bool dynamic : {false, true})
    for (const bool transpose : {false, true}) {
      SCOPED_TRACE(fmt::format("dynamic {}, transposed {}", dynamic, transpose));
      const SparseMatrix matrix = random_matrix(300, 200, 1);
      std::shared_ptr<const PackedWeight> weight = pack(matrix);
      if (dynamic) {
        auto elements = sparse::PackedElements::dynamic(300, 200, matrix.pattern.blocks(), Type::f32);
        weight = std::make_shared<const PackedWeight>(PackedWeight{std::move(elements), false});
      }
      const ProductProblem problem{.n = 70, .product = product_of(transpose)};
      const HostPlan plan = plan_host_product(*weight, problem, host);
      const engine::Engine engine(
          compiler::compile(build_host_program(weight, problem, plan, host).program, host));
      const engine::Profile profile = engine.run({}, {.dry = true});
      EXPECT_NEAR(profile.cycles.total() / host.clock_hz, plan.chosen.total(), 1e-9 * plan.chosen.total());
      if (!dynamic || transpose) continue;
      // Evenly spread elements cost about what an exact pattern of as many does.
      const double fixed = plan_host_product(*pack(matrix), problem, host).chosen.total();
      EXPECT_NEAR(plan.chosen.total(), fixed, 0.3 * fixed);
    }
}

/// Without non-zeros a bias and ReLU are all of the result.
TEST(Spmm, EmptyMatricesGiveTheActivatedBias) {
  constexpr uint32_t kN = 3;
  for (const auto& [m, k, density] :
       {std::tuple{0U, 5U, 1.0}, {5U, 0U, 1.0}, {0U, 0U, 1.0}, {5U, 7U, 0.0}, {1U, 1U, 0.0}, {1U, 1U, 1.0}})
    for (uint32_t block_size : {1U, 8U})
      for (bool transpose : {false, true})
        for (bool has_epilogue : {false, true}) {
          SCOPED_TRACE(fmt::format("{} × {}, b = {}, density {}, transposed {}, epilogue {}", m, k,
                                   block_size, density, transpose, has_epilogue));
          const SparseMatrix matrix = random_matrix(m, k, block_size, density);
          const ProductProblem problem{.n = kN,
                                       .product = product_of(transpose),
                                       .activation = has_epilogue ? Activation::relu : Activation::none,
                                       .bias = has_epilogue};
          const uint32_t rows = transpose ? k : m;
          std::vector<float> x(size_t{k} * kN, transpose ? NAN : 2.0F);
          std::vector<float> y(size_t{m} * kN, transpose ? 2.0F : NAN);
          std::vector<float> bias(rows + 1);  // never null
          for (uint32_t r = 0; r < rows; ++r) bias[r] = 0.75F * static_cast<float>(r) - 1;
          bound::Product product(matrix, problem, machine::host(2));
          product.run({x.data(), kN, 1}, {y.data(), kN, 1}, {}, has_epilogue ? bias.data() : nullptr);
          const std::vector<float>& result = transpose ? x : y;
          const float sum = density == 1 && m == 1 ? 2 * matrix.values[0] : 0;
          for (size_t i = 0; i < result.size(); ++i)
            EXPECT_EQ(result[i], has_epilogue ? std::max(0.0F, sum + bias[i / kN]) : sum) << i;
        }
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

}  // namespace
}  // namespace tessera::ops
