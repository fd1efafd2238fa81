// Programs with named operands. Neither these nor the classes on top of them allocate when they run.
#include "bound/bound_program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/spiking.h>
#include <tessera/spmm.h>
#include <tessera/structured.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "base/on_demand.h"
#include "ops/map/elementwise.h"
#include "sparse/generate.h"
#include "support/allocations.h"
#include "support/error_of.h"
#include "support/numbers.h"
#include "support/toy_machine.h"

namespace tessera::bound {
namespace {

using program::Purpose;
using program::Role;
using test::allocations_in;
using test::random_floats;
using testing::toy_host;
using testing::toy_machine;

constexpr uint32_t kRows = 6, kCols = 10, kSize = kRows * kCols;

/// The sum of matrices "x0", "x1", … in "y".
BoundProgram sum_of(uint32_t terms, const machine::Machine& machine) {
  program::Program program;
  const ops::Builder builder(program, machine);
  std::vector<ops::Operand> x;
  for (uint32_t i = 0; i < terms; ++i)
    x.push_back(builder.external(fmt::format("x{}", i), Role::input, Type::f32, kRows, kCols, {},
                                 i == 0 ? std::optional(Purpose::parameter) : std::nullopt));
  const ops::Operand y = builder.external("y", Role::output, Type::f32, kRows, kCols);
  ops::Operand sum = x[0];
  std::vector<program::StepId> steps;
  for (uint32_t i = 1; i < terms; ++i) {
    const ops::Operand next = i + 1 == terms ? y : builder.temporary("sum", Type::f32, kRows, kCols);
    steps.push_back(ops::add(builder, ops::BinaryProblem{kernels::Binary::add, Type::f32, kRows, kCols},
                             {sum, x[i], next}));
    sum = next;
  }
  program.set_main(builder.sequence(steps));
  return {std::move(program), machine};
}

TEST(BoundProgram, KnowsItsOperands) {
  const BoundProgram program = sum_of(2, toy_host(1));
  ASSERT_EQ(program.operands().size(), 3U);
  const NamedOperand& x = program.operands()[0];
  const NamedOperand& y = program.operands()[program.position_of("y")];
  EXPECT_EQ(x.name, "x0");
  EXPECT_EQ(x.type, Type::f32);
  EXPECT_EQ(x.rows, kRows);
  EXPECT_EQ(x.cols, kCols);
  EXPECT_EQ(x.role, Role::input);
  EXPECT_EQ(x.purpose, Purpose::parameter);
  EXPECT_EQ(y.role, Role::output);
  EXPECT_EQ(y.purpose, Purpose::activation);
  EXPECT_EQ(program.position_of(y.variable), 2U);
  EXPECT_USAGE_ERROR("no operand 'z'; it has x0, x1, y", (void)program.position_of("z"));
}

/// Few arrays, and more arrays than fit the stack.
TEST(BoundProgram, TakesArraysInOrderByNameAndForAllRuns) {
  for (const machine::Machine& machine : {toy_host(2), toy_machine(4)})
    for (const uint32_t terms : {2U, 60U}) {
      BoundProgram program = sum_of(terms, machine);
      std::vector<std::vector<float>> x;
      std::vector<float> expected(kSize);
      for (uint32_t i = 0; i < terms; ++i) {
        x.push_back(random_floats(kSize, i));
        for (uint32_t e = 0; e < kSize; ++e) expected[e] += x[i][e];
      }
      std::vector<float> y(kSize, NAN);
      Arrays in_order(program);
      for (const auto& term : x) in_order.add(term.data());
      in_order.add(y.data());
      program.run(in_order);
      EXPECT_EQ(y, expected);

      const Arrays none(program);
      EXPECT_ERROR("no array is bound to 'x0' (6 × 10)", program.run(none));

      std::vector<float> columns(kSize, NAN);
      for (uint32_t i = 1; i < terms; ++i) program.bind(i, x[i].data());
      Arrays by_name(program);
      by_name.add(x[0].data());
      by_name.set(program.position_of("y"), columns.data(), 1, kRows);
      program.run(by_name);
      for (uint32_t e = 0; e < kSize; ++e) ASSERT_EQ(columns[e % kCols * kRows + e / kCols], expected[e]);
    }
}

TEST(BoundProgram, EstimatesWhatARunTakes) {
  const BoundProgram program = sum_of(3, toy_machine(4));
  const std::vector<float> x(kSize);
  std::vector<float> y(kSize);
  Arrays arrays(program);
  arrays.add(x.data()).add(x.data()).add(x.data()).add(y.data());
  const engine::Profile run = program.run(arrays, {}), estimate = program.estimate();
  EXPECT_EQ(run.cycles.at, estimate.cycles.at);
  EXPECT_EQ(program.estimate(arrays).cycles.at, estimate.cycles.at);
  EXPECT_DOUBLE_EQ(program.seconds_of(estimate), estimate.cycles.total() / program.machine().clock_hz);
  EXPECT_GT(program.memory().total_bytes, 4U * kSize * sizeof(float));
  EXPECT_TRUE(program.fits());
}

/// y = s + x, and then s = y.
std::shared_ptr<const program::Program> sum_over_runs(const machine::Machine& machine) {
  program::Program program;
  const ops::Builder builder(program, machine);
  const ops::Operand s = builder.add({"s", Type::f32, kRows, kCols, Role::state, {}, {}, {}});
  const ops::Operand x = builder.external("x", Role::input, Type::f32, kRows, kCols);
  const ops::Operand y = builder.external("y", Role::output, Type::f32, kRows, kCols);
  std::vector<program::StepId> steps = {
      ops::add(builder, ops::BinaryProblem{kernels::Binary::add, Type::f32, kRows, kCols}, {s, x, y})};
  builder.send(y, s, steps);
  program.set_main(builder.sequence(steps));
  return std::make_shared<const program::Program>(std::move(program));
}

TEST(BoundProgram, ResumesStateOrBeginsAnew) {
  for (const machine::Machine& machine : {toy_host(2), toy_machine(4)}) {
    const auto program = sum_over_runs(machine);
    const BoundProgram fresh(program, machine, Runs::fresh), resumed(program, machine, Runs::resumed);
    const BoundProgram none(program, machine, Runs::none);
    EXPECT_EQ(none.estimate().cycles.at, fresh.estimate().cycles.at);
    EXPECT_EQ(none.estimate().cycles.at, resumed.estimate().cycles.at);
    EXPECT_EQ(none.memory().total_bytes, resumed.memory().total_bytes);
    const std::vector<float> x = random_floats(kSize, 1);
    for (uint32_t run = 1; run <= 3; ++run)
      for (const BoundProgram* each : {&fresh, &resumed}) {
        std::vector<float> y(kSize, NAN);
        Arrays arrays(*each);
        each->run(arrays.add(x.data()).add(y.data()));
        const float times = each == &fresh ? 1 : static_cast<float>(run);
        for (uint32_t e = 0; e < kSize; ++e) ASSERT_FLOAT_EQ(y[e], times * x[e]);
      }
    resumed.state().reset();
    std::vector<float> y(kSize, NAN);
    Arrays arrays(resumed);
    resumed.run(arrays.add(x.data()).add(y.data()));
    EXPECT_EQ(y, x);
  }
}

TEST(BoundProgram, SaysThatItDoesNotFit) {
  const BoundProgram program = sum_of(3, toy_machine(2, 256));
  EXPECT_FALSE(program.fits());
  EXPECT_ERROR("does not fit toy", program.require_fit());
}

TEST(BoundProgram, IsSavedAndLoaded) {
  const std::string file = std::filesystem::temp_directory_path() / "bound_program_test.tessera";
  for (const machine::Machine& machine : {toy_host(2), toy_machine(4)}) {
    sum_of(2, machine).save(file);
    const BoundProgram loaded = BoundProgram::load(file, machine);
    const std::vector<float> a = random_floats(kSize, 1), b = random_floats(kSize, 2);
    std::vector<float> y(kSize, NAN);
    Arrays arrays(loaded);
    arrays.set(loaded.position_of("x0"), a.data());
    arrays.set(loaded.position_of("x1"), b.data());
    arrays.set(loaded.position_of("y"), y.data());
    loaded.run(arrays);
    for (uint32_t e = 0; e < kSize; ++e) ASSERT_EQ(y[e], a[e] + b[e]);
    EXPECT_EQ(loaded.operands()[0].purpose, Purpose::parameter);
    EXPECT_THROW(BoundProgram::load(file, toy_machine(5)), Error);
  }
  std::filesystem::remove(file);
}

TEST(BoundProgram, RunsInSeveralThreadsAtOnce) {
  const BoundProgram program = sum_of(2, toy_host(2));
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 50; ++i) {
        const std::vector<float> a = random_floats(kSize, t), b = random_floats(kSize, i);
        std::vector<float> y(kSize, NAN);
        Arrays arrays(program);
        arrays.add(a.data()).add(b.data()).add(y.data());
        program.run(arrays);
        for (uint32_t e = 0; e < kSize; ++e) ASSERT_EQ(y[e], a[e] + b[e]);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(OnDemand, MakesEachOnce) {
  base::OnDemand<std::string> texts;
  EXPECT_EQ(texts.find(4), nullptr);
  const std::string& four = texts.at(4, [] { return std::string("four"); });
  EXPECT_EQ(texts.at(5, [] { return std::string("five"); }), "five");
  EXPECT_EQ(&texts.at(4, [] { return std::string("another"); }), &four);
  EXPECT_EQ(texts.find(4), &four);
  EXPECT_THROW(texts.at(6, []() -> std::string { throw UsageError("no six"); }), UsageError);
  EXPECT_EQ(texts.at(6, [] { return std::string("six"); }), "six");
}

/// The first call compiles and takes memory, the next none.
#define EXPECT_NO_ALLOCATIONS_IN(call)              \
  do {                                              \
    const auto made = [&] { call; };                \
    made();                                         \
    EXPECT_EQ(allocations_in([&] {                  \
                for (int i = 0; i < 3; ++i) made(); \
              }),                                   \
              0U);                                  \
  } while (false)

TEST(Allocations, AreCounted) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "the thread sanitizer has its own allocation functions";
  EXPECT_EQ(allocations_in([] { ::operator delete(::operator new(400)); }), 1U);
  EXPECT_EQ(allocations_in([] {}), 0U);
}

TEST(Allocations, NoneInRunsOfPrograms) {
  for (const machine::Machine& machine : {toy_host(1), toy_host(2), toy_machine(4)}) {
    const BoundProgram program = sum_of(3, machine), large = sum_of(60, machine);
    const std::vector<float> x(kSize);
    std::vector<float> y(kSize);
    EXPECT_NO_ALLOCATIONS_IN({
      Arrays arrays(program);
      arrays.add(x.data()).add(x.data()).add(x.data()).add(y.data());
      program.run(arrays);
    });
    Arrays arrays(large);
    for (uint32_t i = 0; i < 60; ++i) arrays.add(x.data());
    arrays.add(y.data());
    EXPECT_NO_ALLOCATIONS_IN(large.run(arrays));
  }
}

TEST(Allocations, NoneInProducts) {
  constexpr uint32_t kColumns = 16;
  for (const uint32_t block_size : {1U, 8U})
    for (const bool is_dynamic : {false, true})
      for (const uint32_t threads : {1U, 2U}) {
        const SparseMatrix matrix = generate({PatternKind::random, 64, 48, 0.4, block_size, 1});
        const Weight weight =
            is_dynamic ? Weight::dynamic(matrix, matrix.pattern.blocks() + 5) : Weight(matrix);
        const Spmm product(weight, kColumns, {.bias = true, .threads = threads});
        const Spmm transposed(weight, kColumns, {.transpose = true, .threads = threads});
        const Sddmm gradient(weight, kColumns, {.threads = threads});
        const std::vector<float> x = random_floats(48 * kColumns, 1), bias(64);
        std::vector<float> y(64 * kColumns), dx(x.size()), dw(weight.packed_size());
        EXPECT_NO_ALLOCATIONS_IN(product({.x = x.data(), .y = y.data(), .bias = bias.data()}));
        EXPECT_NO_ALLOCATIONS_IN(transposed({.x = y.data(), .y = dx.data()}));
        EXPECT_NO_ALLOCATIONS_IN(gradient({.dy = y.data(), .x = x.data(), .dw = dw.data()}));
      }
}

TEST(Allocations, NoneInStructuredProducts) {
  constexpr uint32_t kBatch = 8;
  const std::vector<Structure> maps = {Circulant{24}, Kronecker{2, 3, 4, 3}};
  const StructuredProduct product(maps[1], kBatch, {.threads = 2, .bias = true});
  const StructuredProduct chain(maps, kBatch, {.threads = 2, .bias = true});
  const std::vector<float> c(24), w(72), bias(18), x(24 * kBatch), dy(18 * kBatch);
  std::vector<float> y(18 * kBatch), dx(24 * kBatch), dc(24), dw(72), dbias(18);
  const float* parameters[] = {c.data(), w.data(), bias.data()};
  float* gradients[] = {dc.data(), dw.data(), dbias.data()};
  const std::span<const float* const> of_chain(parameters), of_product = of_chain.subspan(1);
  const std::span<float* const> gradients_of_chain(gradients);
  EXPECT_NO_ALLOCATIONS_IN(product(x.data(), of_product, y.data()));
  EXPECT_NO_ALLOCATIONS_IN(
      product.gradients(x.data(), dy.data(), of_product, dx.data(), gradients_of_chain.subspan(1)));
  EXPECT_NO_ALLOCATIONS_IN(chain(x.data(), of_chain, y.data()));
  EXPECT_NO_ALLOCATIONS_IN(chain.gradients(x.data(), dy.data(), of_chain, dx.data(), gradients_of_chain));
}

TEST(Allocations, NoneInSpikingNetworks) {
  constexpr uint32_t kSteps = 5, kBatch = 3, kInputs = 8, kOutputs = 4;
  SpikingNetwork network(
      {{.inputs = kInputs, .neurons = 12}, {.inputs = 12, .neurons = kOutputs, .neuron = {.spikes = false}}},
      kSteps, kBatch, {.threads = 2});
  std::vector<uint16_t> ids(size_t{kSteps} * kBatch * kInputs);
  std::vector<uint32_t> num(size_t{kSteps} * kBatch * 2, 1);
  std::vector<std::vector<float>> values, weights;
  std::vector<const float*> parameters;
  std::vector<float*> gradients;
  for (size_t i = 0; i < network.layers(); ++i)
    for (const SpikingParameter& parameter : parameters_of(network.layer(i)))
      values.emplace_back(parameter.elements(), 0.5F);
  for (const auto& value : values) parameters.push_back(value.data());
  weights = {std::vector<float>(kInputs * 12), std::vector<float>(12 * kOutputs)};
  for (auto& weight : weights) gradients.push_back(weight.data());
  const std::vector<float> upstream(size_t{kSteps} * kBatch * kOutputs, 1.0F);
  const SpikeLists lists{ids.data(), num.data(), kInputs};
  EXPECT_NO_ALLOCATIONS_IN(network.forward(lists, parameters));
  EXPECT_NO_ALLOCATIONS_IN(network.gradients(lists, parameters, upstream.data(), gradients));
}

TEST(Allocations, NoneInSpikingNeurons) {
  constexpr uint32_t kNeurons = 6, kSteps = 5, kBatch = 3, kWide = kNeurons * kBatch * kSteps;
  const SpikingNeurons neurons({}, kNeurons, kSteps, kBatch, {.threads = 2});
  const std::vector<float> currents(kWide, 0.7F), dynamics(3 * kNeurons, 0.9F), upstream(kWide, 1.0F);
  std::vector<float> spikes(kWide), potentials(kWide), of_currents(kWide);
  const SpikingNeurons::Inputs in{.currents = currents.data(), .dynamics = dynamics.data()};
  EXPECT_NO_ALLOCATIONS_IN(neurons.forward(in, {.spikes = spikes.data(), .potentials = potentials.data()}));
  EXPECT_NO_ALLOCATIONS_IN(neurons.gradients(
      in, {.potentials = potentials.data(), .of_spikes = upstream.data()}, {.currents = of_currents.data()}));
}

}  // namespace
}  // namespace tessera::bound
