// The predictions of plans for structured maps and spiking layers on hosts: they equal the costs of programs,
// and grow with the work.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "ops/spiking/counts.h"
#include "ops/spiking/spiking.h"
#include "ops/structured/host/codelets.h"
#include "ops/structured/structured.h"
#include "support/structured_reference.h"

namespace tessera::ops {
namespace {

/// Each structure with `features` features, a power of two.
std::vector<Structure> structures(uint32_t features) {
  return {Butterfly{.inputs = features, .outputs = features},
          Kronecker{.a = 1, .b = features / 8, .c = features / 8, .d = 8}, Circulant{.size = features},
          Toeplitz{.inputs = features, .outputs = features}, test::shuffled_fastfood(features, features)};
}

program::Program built(const StructuredProblem& p, const StructuredPlan& plan,
                       const machine::Machine& machine) {
  program::Program program;
  const Builder b(program, machine);
  program.set_main(build_structured(b, p, plan, external_operands(b, p)));
  return program;
}

TEST(HostCosts, OfStructuredMapsAreThoseOfTheirPrograms) {
  for (const uint32_t threads : {1U, 4U})
    for (const Structure& structure : structures(64))
      for (const bool gradients : {false, true})
        for (const bool bias : {false, true}) {
          const machine::Machine host = machine::host(threads);
          const StructuredProblem p{
              .structure = structure, .batch = 512, .bias = bias, .gradients = gradients};
          const StructuredPlan plan = plan_structured(p, host);
          const double predicted = plan.chosen.total(),
                       counted =
                           compiler::estimate(built(p, plan, host), host).cycles.total() / host.clock_hz;
          EXPECT_NEAR(predicted, counted, 0.05 * counted)
              << fmt::format("{}, {} threads, gradients {}, bias {}: {}", name_of(structure), threads,
                             gradients, bias, predicted / counted);
        }
}

TEST(StructuredMaps, GetTheScratchThatTheirCodeletsNeed) {
  const machine::Machine host = machine::host(3);
  for (const uint32_t features : {8U, 64U, 256U})
    for (const Structure& structure : structures(features))
      for (const uint32_t batch : {5U, 100U})
        for (const bool gradients : {false, true}) {
          const StructuredProblem p{.structure = structure, .batch = batch, .gradients = gradients};
          const StructuredPlan plan = plan_structured(p, host);
          const program::Program program = built(p, plan, host);
          const program::Field& scratch = program.compute_sets()[0].groups[0].fields.back();
          const uint32_t samples = std::get<BatchPartition>(plan.partition).most_samples();
          EXPECT_GE(program::field_box(program, scratch, 0).cols, codelet_of(p, samples).scratch_floats)
              << fmt::format("{} of {}, batch {}, gradients {}", name_of(structure), features, batch,
                             gradients);
        }
}

TEST(HostCosts, OfStructuredMapsRiseWithTheirWork) {
  const machine::Machine host = machine::host(2);
  const std::vector<Structure> small = structures(64), large = structures(128);
  for (size_t i = 0; i < small.size(); ++i)
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, transposed {}", name_of(small[i]), transposed));
      const StructuredProblem p{.structure = small[i], .batch = 128, .transposed = transposed};
      const auto cost = [&](const auto& change) {
        StructuredProblem changed = p;
        change(changed);
        return plan_structured(changed, host).chosen.total();
      };
      const double forward = cost([](auto&) {});
      EXPECT_GT(cost([](auto& q) { q.batch = 256; }), forward);
      EXPECT_GT(cost([&](auto& q) { q.structure = large[i]; }), forward);
      EXPECT_GT(cost([](auto& q) { q.bias = true; }), forward);
      const double gradients = cost([](auto& q) { q.gradients = true; });
      EXPECT_GT(gradients, forward);
      EXPECT_LT(cost([](auto& q) { q.gradients = true, q.input_gradient = false; }), gradients);
      EXPECT_LT(cost([](auto& q) { q.gradients = true, q.parameter_gradients = false; }), gradients);
      EXPECT_GT(cost([](auto& q) { q.gradients = q.bias = true; }), gradients);
    }
}

TEST(HostCosts, OfSpikingLayersRiseWithTheirWork) {
  const machine::Machine host = machine::host(2);
  for (const bool gradients : {false, true}) {
    SCOPED_TRACE(gradients);
    const SpikingProblem p{.layer = {.inputs = 128, .neurons = 64},
                           .steps = 20,
                           .batch = 32,
                           .in_capacity = 64,
                           .gradients = gradients,
                           .expected_inputs = 10,
                           .expected_listed = 8};
    const auto cost = [&](const auto& change) {
      SpikingProblem changed = p;
      change(changed);
      return plan_spiking(changed, host).chosen.total();
    };
    const double once = cost([](auto&) {});
    EXPECT_GT(cost([](auto& q) { q.steps = 40; }), once);
    EXPECT_GT(cost([](auto& q) { q.batch = 64; }), once);
    EXPECT_GT(cost([](auto& q) { q.layer.neurons = 128; }), once);
    EXPECT_GT(cost([](auto& q) { q.layer.recurrent = true; }), once);
    EXPECT_GT(cost([](auto& q) { q.expected_inputs = 20; }), once);
    if (gradients) {
      EXPECT_GT(cost([](auto& q) { q.expected_listed = 16; }), once);
      EXPECT_LT(cost([](auto& q) { q.input_gradient = false; }), once);
    }
  }
}

TEST(HostCosts, OfCountsOfSpikesRiseWithTheirWork) {
  const machine::Machine host = machine::host(2);
  for (const bool gradient : {false, true}) {
    const SpikeCountsProblem p{
        .steps = 20, .batch = 32, .capacity = 40, .neurons = 64, .gradient = gradient, .expected = 10};
    const auto cost = [&](const auto& change) {
      SpikeCountsProblem changed = p;
      change(changed);
      return plan(changed, host).chosen.total();
    };
    const double once = cost([](auto&) {});
    EXPECT_GT(cost([](auto& q) { q.steps = 40; }), once) << gradient;
    EXPECT_GT(cost([](auto& q) { q.batch = 64; }), once) << gradient;
    EXPECT_GT(cost([](auto& q) { q.expected = 20; }), once) << gradient;
  }
}

}  // namespace
}  // namespace tessera::ops
