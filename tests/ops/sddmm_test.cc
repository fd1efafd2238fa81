// Plans and programs of SDDMM on the host.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <vector>

#include "bound/product.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/sparse/host/spmm.h"
#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera::ops {
namespace {

std::shared_ptr<const PackedWeight> random_weight(uint32_t m, uint32_t k, uint32_t block_size) {
  return std::make_shared<const PackedWeight>(
      prepack_weight(generate({PatternKind::random, m, k, 0.2, block_size, 7}), Type::f32));
}

ProductProblem sddmm(uint32_t n) { return {.n = n, .product = Product::sddmm}; }

TEST(SddmmPlan, UsesNoMoreTilesThanTheMachineHas) {
  for (uint32_t threads : {1U, 2U, 3U, 8U})
    for (uint32_t block_size : {1U, 4U, 16U})
      for (uint32_t n : {0U, 1U, 17U, 700U}) {
        const auto weight = random_weight(100, 90, block_size);
        const HostPlan plan = plan_host_product(*weight, sddmm(n), machine::host(threads));
        EXPECT_LE(plan.tiles_used(), threads);
        EXPECT_EQ(plan.partition.row_begin.front(), 0U);
        EXPECT_TRUE(plan.chosen.rejected.empty());
      }
}

TEST(SddmmPlan, EveryRejectedCandidateSaysWhy) {
  for (uint32_t block_size : {1U, 16U}) {
    const HostPlan plan =
        plan_host_product(*random_weight(512, 2048, block_size), sddmm(512), machine::host(2));
    size_t chosen = 0;
    for (const PlanCandidate& candidate : plan.candidates) chosen += candidate.rejected.empty() ? 1 : 0;
    EXPECT_EQ(chosen, 1U);
    EXPECT_GE(plan.candidates.size(), 2U);
  }
}

TEST(SddmmPlan, TakesForcedKnobsAndRefusesUnknownOnes) {
  const auto weight = random_weight(512, 512, 16);
  EXPECT_EQ(plan_host_product(*weight, sddmm(64), machine::host(2), {{"row_parts", 1}}).tiles_used(), 1U);
  const std::string message = test::error_of<UsageError>([&] {
    plan_host_product(*weight, sddmm(64), machine::host(2), {{"colour", 1}});
  });
  EXPECT_TRUE(test::says(message, "no knob 'colour'"));
  EXPECT_TRUE(test::says(message, "group_rows"));
}

TEST(SddmmPlan, PredictsTheAccountOfTheExecutable) {
  for (uint32_t block_size : {1U, 4U, 16U}) {
    const machine::Machine host = machine::host(2);
    const auto weight = random_weight(300, 200, block_size);
    const ProductProblem problem = sddmm(70);
    const HostPlan plan = plan_host_product(*weight, problem, host);
    const engine::Engine engine(
        compiler::compile(build_host_program(weight, problem, plan, host).program, host));
    const engine::Profile profile = engine.run({}, {.dry = true});
    EXPECT_NEAR(profile.cycles.total() / host.clock_hz, plan.chosen.total(), 1e-9 * plan.chosen.total());
  }
}

/// Without columns dW is 0; without rows or columns of W there is none.
TEST(Sddmm, OfEmptyMatricesIsTheEmptySum) {
  for (const auto& [m, k] : {std::pair{0U, 5U}, {5U, 0U}, {0U, 0U}, {1U, 1U}, {9U, 11U}})
    for (uint32_t block_size : {1U, 8U})
      for (double density : {0.0, 1.0})
        for (uint32_t n : {0U, 3U}) {
          SCOPED_TRACE(fmt::format("{} × {}, b = {}, density {}, n = {}", m, k, block_size, density, n));
          const SparseMatrix matrix = generate({PatternKind::random, m, k, density, block_size, 7});
          std::vector<float> x(size_t{k} * n, 2), dy(size_t{m} * n, 0.5F);
          bound::Product product(matrix, sddmm(n), machine::host(2));
          product.run({x.data(), n, 1}, {dy.data(), n, 1});
          const SparseMatrix dw{matrix.pattern, product.gradient()};
          ASSERT_EQ(dw.values.size(), matrix.values.size());
          const std::vector<float> dense = sparse::to_dense(dw);
          EXPECT_EQ(dense, std::vector<float>(size_t{m} * k, density == 1 ? static_cast<float>(n) : 0.0F));
        }
}

}  // namespace
}  // namespace tessera::ops
