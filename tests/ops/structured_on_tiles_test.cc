// Structured maps on tiles: compared with their definitions in float64, at the cost that plans promise.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/bound_operands.h"
#include "ops/run_on_tiles.h"
#include "ops/structured/tiles/structured.h"
#include "support/allocations.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/structured_reference.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

void expect_right(const StructuredProblem& p, const machine::Machine& machine) {
  SCOPED_TRACE(fmt::format("{} of {} to {} features, batch {}, {}, transposed {}, gradients {} on {} of {}",
                           name_of(p.structure), inputs_of(p.structure), outputs_of(p.structure), p.batch,
                           name_of(p.type), p.transposed, p.gradients, machine.tiles, machine.name));
  const auto [inputs, outputs] = features_of(p.structure);
  const std::vector<float> x = random_elements(uint64_t{p.batch} * inputs, p.type, 2);
  const std::vector<float> dy = random_elements(uint64_t{p.batch} * outputs, p.type, 3);
  test::Vectors parameters;
  for (const StructuredParameter& parameter : parameters_of(p.structure))
    parameters.push_back(random_elements(parameter.elements(), p.type, 4 + parameters.size()));

  const StructuredPlan plan = plan_structured(p, machine);
  program::Program program;
  const Builder b(program, machine);
  std::vector<program::MappedBox> mapping;
  if (const auto* chain = std::get_if<TileChainPartition>(&plan.partition))
    mapping = chain_parameter_mapping(p, *chain);
  const StructuredOperands o = external_operands(b, p, mapping);
  program.set_main(build_structured(b, p, plan, o));

  const auto in_order = [&](const auto& samples) {
    return p.transposed ? test::transposed(samples, p.batch) : samples;
  };
  BoundOperands operands(p.type);
  operands.bind(o.x, in_order(x));
  operands.bind(o.y, p.gradients ? in_order(dy) : std::vector<float>{});
  for (size_t i = 0; i < parameters.size(); ++i) operands.bind(o.parameters[i], parameters[i]);
  if (o.dx) operands.bind(*o.dx, {});
  for (const Operand& gradient : o.parameter_gradients) operands.bind(gradient, {});
  operands.run(std::move(program), machine, plan.chosen.seconds);

  const test::StructuredReference reference({&p.structure, 1}, parameters, x, dy, p.batch);
  if (!p.gradients) operands.expect_near(o.y, in_order(reference.y));
  if (o.dx) operands.expect_near(*o.dx, in_order(reference.dx));
  for (size_t i = 0; i < o.parameter_gradients.size(); ++i)
    operands.expect_near(o.parameter_gradients[i], reference.gradients[i]);
}

std::vector<StructuredProblem> problems() {
  return {{Kronecker{2, 3, 5, 4}, 9},
          {Kronecker{1, 8, 8, 4, 29, 31}, 5},
          {Butterfly{32, 32}, 9},
          {Butterfly{.inputs = 13, .outputs = 11, .decreasing = true}, 5},
          {Butterfly{7, 20}, 4},
          {Butterfly{.inputs = 16, .outputs = 16, .nblocks = 2}, 6},
          {Butterfly{2, 2}, 3},
          {Butterfly{.inputs = 16, .outputs = 16, .tied = true}, 5},
          {Butterfly{.inputs = 8, .outputs = 13, .tied = true, .decreasing = true}, 4},
          {Butterfly{.inputs = 32, .outputs = 32, .complex = true}, 9},
          {Butterfly{.inputs = 13, .outputs = 19, .nblocks = 2, .complex = true, .decreasing = true}, 5},
          {Butterfly{.inputs = 8, .outputs = 13, .tied = true, .complex = true, .decreasing = true}, 4},
          {Toeplitz{17, 17}, 5},
          {Toeplitz{9, 21}, 7},
          {Toeplitz{1, 1}, 1},
          {Circulant{16}, 6},
          {Circulant{29, 13, 8}, 4},
          {test::shuffled_fastfood(16, 16), 5},
          {test::shuffled_fastfood(27, 50), 9},
          {test::shuffled_fastfood(2, 6), 4}};
}

TEST(StructuredOnTiles, IsRightAtItsPlansCost) {
  test::EveryNth some(7);
  for (StructuredProblem p : problems())
    for (const uint32_t tiles : {1U, 24U})
      for (const Type type : {Type::f32, Type::f16})
        for (const bool transposed : {false, true})
          for (const bool gradients : {false, true}) {
            if (!some.takes()) continue;
            p.type = type;
            p.transposed = transposed;
            p.gradients = gradients;
            expect_right(p, testing::toy_machine(tiles, 1 << 20));
          }
}

TEST(StructuredOnTiles, LeavesGradientsOut) {
  for (StructuredProblem p : problems())
    for (const bool input : {false, true}) {
      p.gradients = true;
      p.input_gradient = input;
      p.parameter_gradients = !input;
      expect_right(p, testing::toy_machine(7, 1 << 20));
    }
}

TEST(StructuredOnTiles, RunsOnIpus) {
  const std::vector<Structure> structures = {Butterfly{256, 256}, Kronecker{1, 16, 16, 16}, Circulant{128},
                                             test::shuffled_fastfood(128, 128)};
  test::EveryNth some(5);
  for (const char* name : {"gc200", "bow"})
    for (const Structure& structure : structures)
      for (const Type type : {Type::f32, Type::f16})
        for (const bool gradients : {false, true})
          if (some.takes())
            expect_right({.structure = structure, .batch = 8, .type = type, .gradients = gradients},
                         machine::find(name));
}

TEST(StructuredOnTiles, EqualMapsArePlannedOnce) {
  StructuredProblem p{.structure = Butterfly{256, 256}, .batch = 31};
  const machine::Machine chip = machine::find("gc200");
  StructuredPlan first, again;
  const uint64_t once = test::allocations_in([&] { first = plan_structured(p, chip); });
  const uint64_t repeated = test::allocations_in([&] { again = plan_structured(p, chip); });
  EXPECT_LT(repeated, once / 10);
  EXPECT_EQ(first.chosen.partition, again.chosen.partition);
  const machine::Machine pod = machine::find("m2000");
  (void)plan_structured(p, pod.part(0, pod.chip_tiles));
  EXPECT_LT(test::allocations_in([&] { (void)plan_structured(p, pod.part(pod.chip_tiles, pod.chip_tiles)); }),
            once / 10)
      << "on another chip";
  p.gradients = true;
  EXPECT_NE(plan_structured(p, chip).chosen.partition, "");
  EXPECT_NE(plan_structured(p, chip).chosen.total(), first.chosen.total());
}

TEST(StructuredOnTiles, RefusesWhatCannotBe) {
  const auto message = [](const StructuredProblem& p) {
    return test::error_of<UsageError>([&] { plan_structured(p, testing::toy_machine(4)); });
  };
  for (StructuredProblem p : problems()) {
    EXPECT_EQ(message(p), "(no error)");
    p.bias = true;
    EXPECT_TRUE(test::says(message(p), "with a bias runs on hosts"));
    p.batch = 0;
    EXPECT_TRUE(test::says(message(p), "has no samples"));
  }
  constexpr uint32_t kInputs = 1U << 21;
  Fastfood large{.inputs = kInputs, .outputs = 1, .permutation = std::vector<uint32_t>(kInputs)};
  for (uint32_t i = 0; i < kInputs; ++i) large.permutation[i] = i;
  for (const Structure& structure : std::vector<Structure>{Butterfly{kInputs, 1}, large})
    EXPECT_TRUE(test::says(message({structure, 2}), "butterflies of 21 levels are not possible on tiles"));
  EXPECT_TRUE(test::says(message({Butterfly{9, 0}, 2}), "outputs is 0"));
  EXPECT_TRUE(test::says(message({Kronecker{1, 2, 3, 1, 4}, 2}), "is 4; it must be 1 to 3"));
  EXPECT_TRUE(test::says(message({Fastfood{8, 8, {0}}, 2}), "1 × 8 are needed"));
}

}  // namespace
}  // namespace tessera::ops
