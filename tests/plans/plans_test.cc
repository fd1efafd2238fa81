// The plans chosen for three machines with fixed figures, in files: they show which plans a changed cost
// changes. Rewritten with TESSERA_UPDATE_GOLDEN=1.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <fstream>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/sparse/host/spmm.h"
#include "ops/spiking/spiking.h"
#include "ops/structured/structured.h"
#include "ops/tiles/product.h"
#include "sparse/blocks/packed_blocks.h"
#include "support/fixed_machines.h"
#include "support/golden.h"
#include "support/number_of.h"

namespace tessera::ops {
namespace {

constexpr uint64_t kSeed = 1;
constexpr ProductKind kProducts[] = {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm};

/// A weight of a table: `block` 0 stands for a dense one.
struct Weight {
  uint32_t m;
  uint32_t k;
  uint32_t block;
  double density;
};

std::string text(const Weight& w) {
  if (w.block == 0) return fmt::format("{} x {} dense", w.m, w.k);
  return fmt::format("{} x {} b = {} d = {:.4g}", w.m, w.k, w.block, w.density);
}

PackedWeight packed_weight(const Weight& w, Type type) {
  if (w.block == 0) return {sparse::PackedPanels(w.m, w.k, type)};
  return prepack_weight(generate({PatternKind::random, w.m, w.k, w.density, w.block, kSeed}), type);
}

std::string host_plans(const machine::Machine& machine, Type type) {
  std::string lines;
  const std::vector<Weight> weights = {{16, 16, 0, 1},        {256, 256, 0, 1},      {1024, 768, 0, 1},
                                       {256, 256, 1, 0.1},    {1024, 768, 1, 0.02},  {1024, 768, 1, 0.2},
                                       {1024, 768, 4, 0.1},   {1024, 768, 8, 0.125}, {512, 512, 16, 0.5},
                                       {2048, 2048, 16, 0.1}, {1024, 768, 32, 0.25}};
  for (const Weight& w : weights) {
    const PackedWeight packed = packed_weight(w, type);
    for (ProductKind product : kProducts)
      for (uint32_t n : {1U, 8U, 64U, 512U}) {
        const ProductProblem problem{.n = n, .type = type, .dense = w.block == 0, .product = product};
        const HostPlan plan = plan_host_product(packed, problem, machine);
        lines +=
            fmt::format("{} {} {} n = {}: {}; {} x {} parts\n", text(w), name_of(type), name_of(product), n,
                        plan.chosen.partition, plan.partition.row_parts(), plan.partition.col_parts());
      }
  }
  return lines;
}

/// Plans for weights of which only the number of blocks is known.
std::string dynamic_host_plans(const machine::Machine& machine) {
  std::string lines;
  for (const Weight& w : {Weight{1024, 768, 1, 0.02}, {1024, 768, 1, 0.2}, {1024, 768, 8, 0.125}}) {
    const Pattern pattern = generate({PatternKind::random, w.m, w.k, w.density, w.block, kSeed}).pattern;
    const uint64_t capacity = pattern.blocks();
    const PackedWeight packed =
        w.block == 1 ? PackedWeight{sparse::PackedElements::dynamic(w.m, w.k, capacity, Type::f32)}
                     : PackedWeight{sparse::PackedBlocks(pattern, Type::f32, capacity)};
    for (ProductKind product : kProducts)
      for (uint32_t n : {1U, 64U}) {
        const HostPlan plan = plan_host_product(packed, {.n = n, .product = product}, machine);
        lines += fmt::format("{} dynamic {} n = {}: {}; {} x {} parts, {:.6g} us\n", text(w),
                             name_of(product), n, plan.chosen.partition, plan.partition.row_parts(),
                             plan.partition.col_parts(), plan.chosen.total() * 1e6);
      }
  }
  return lines;
}

/// Lines that are compared with the lines of a file. The short run makes every seventh line, with plans of
/// all kinds.
class Lines {
 public:
  explicit Lines(const std::string& file) : file_(file) {}

  template <class Make>
  void add(const Make& make) {
    std::string in_file;
    std::getline(file_, in_file);
    text_ += some_.takes() || testing::updates_golden() ? make() : in_file + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::ifstream file_;
  test::EveryNth some_{7};
  std::string text_;
};

std::string tile_plan(const Weight& w, const ProductProblem& problem, const machine::Machine& machine) {
  const Pattern pattern = w.block == 0
                              ? Pattern{w.m, w.k, 1, std::vector<uint64_t>(w.m + 1), {}}
                              : generate({PatternKind::random, w.m, w.k, w.density, w.block, kSeed}).pattern;
  ProductProblem asked = problem;
  asked.dense = w.block == 0;
  if (asked.capacity) asked.capacity = pattern.blocks();
  const TileProductPlan plan = plan_tile_product(pattern, asked, machine);
  return fmt::format("{}{} {} {} n = {}, {}: {}{}\n", text(w), asked.capacity ? " dynamic" : "",
                     name_of(problem.type), name_of(problem.product), problem.n,
                     problem.planner == Planner::best ? "best" : "vendor", plan.chosen.partition,
                     plan.chosen.rejected.empty() ? "" : "; " + plan.chosen.rejected);
}

std::string tile_plans(const machine::Machine& machine, const std::string& file) {
  Lines lines(file);
  const auto add = [&](const Weight& w, const ProductProblem& problem) {
    lines.add([&] { return tile_plan(w, problem, machine); });
  };
  const std::vector<Weight> weights = {{1024, 1024, 0, 1},
                                       {1024, 1024, 1, 1.0 / 16},
                                       {1024, 1024, 4, 1.0 / 8},
                                       {1024, 1024, 16, 1.0 / 4},
                                       {2048, 1024, 16, 1.0 / 16}};
  for (const Weight& w : weights)
    for (Planner planner : {Planner::best, Planner::vendor})
      for (uint32_t n : {16U, 256U, 4096U})
        add(w, {.n = n, .type = Type::f16, .partials = Type::f16, .planner = planner});
  for (const Weight& w : weights)
    for (ProductKind product : {ProductKind::input_gradient, ProductKind::sddmm})
      add(w, {.n = 256, .type = Type::f16, .partials = Type::f16, .product = product});
  for (const Weight& w : weights) add(w, {.n = 256, .type = Type::f32, .partials = Type::f32});
  for (const Weight& w : weights)
    if (w.block != 0)
      for (Planner planner : {Planner::best, Planner::vendor})
        add(w, {.n = 256, .type = Type::f16, .partials = Type::f16, .planner = planner, .capacity = 1});
  return lines.text();
}

/// Their parts, and predictions to the last digit: no other test notices a wrong estimate.
std::string structured_plans(const machine::Machine& machine, Type type) {
  const std::vector<Structure> structures = {
      Butterfly{.inputs = 512, .outputs = 512},    Butterfly{.inputs = 100, .outputs = 300, .tied = true},
      Kronecker{.a = 8, .b = 32, .c = 32, .d = 4}, Circulant{.size = 512},
      Circulant{.size = 512, .outputs = 96},       Toeplitz{.inputs = 300, .outputs = 200}};
  std::string lines;
  for (const Structure& structure : structures)
    for (bool gradients : {false, true})
      for (uint32_t batch : {16U, 512U}) {
        const StructuredPlan plan = plan_structured(
            {.structure = structure, .batch = batch, .type = type, .gradients = gradients}, machine);
        const StructuredFeatures features = features_of(structure);
        lines += fmt::format("{} {} x {}{} batch = {}: {}; {:.6g} us\n", name_of(structure), features.outputs,
                             features.inputs, gradients ? " gradients" : "", batch, plan.chosen.partition,
                             plan.chosen.total() * 1e6);
      }
  return lines;
}

std::string spiking_plans(const machine::Machine& machine) {
  std::string lines;
  for (bool recurrent : {false, true})
    for (bool gradients : {false, true})
      for (uint32_t batch : {1U, 64U, 256U}) {
        const SpikingProblem problem{.layer = {.inputs = 700, .neurons = 200, .recurrent = recurrent},
                                     .steps = 100,
                                     .batch = batch,
                                     .in_capacity = 100,
                                     .gradients = gradients,
                                     .expected_inputs = 14,
                                     .expected_listed = 8};
        const SpikingPlan plan = plan_spiking(problem, machine);
        lines += fmt::format("spiking 700-200{}{} batch = {}: {}; {:.6g} us\n", recurrent ? "r" : "",
                             gradients ? " gradients" : "", batch, plan.chosen.partition,
                             plan.chosen.total() * 1e6);
      }
  return lines;
}

std::string golden(const std::string& name) { return TESSERA_GOLDEN_PLANS + ("/" + name); }

TEST(PinnedPlans, OfAHostWithAvx2) {
  const machine::Machine host = testing::avx2_host();
  testing::expect_golden(golden("avx2.txt"), host_plans(host, Type::f32) + host_plans(host, Type::bf16) +
                                                 dynamic_host_plans(host) +
                                                 structured_plans(host, Type::f32) + spiking_plans(host));
}

TEST(PinnedPlans, OfAHostWithAvx512) {
  const machine::Machine host = testing::avx512_host();
  testing::expect_golden(golden("avx512.txt"), host_plans(host, Type::f32) + host_plans(host, Type::bf16) +
                                                   dynamic_host_plans(host) +
                                                   structured_plans(host, Type::f32) + spiking_plans(host));
}

TEST(PinnedPlans, OfBow) {
  const machine::Machine bow = machine::find("bow");
  const std::string file = golden("bow.txt");
  testing::expect_golden(file, tile_plans(bow, file) + structured_plans(bow, Type::f32));
}

}  // namespace
}  // namespace tessera::ops
