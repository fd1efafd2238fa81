// Functions of operations, called with other operands: by address, or on tiles with copies of operands that
// lie elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "compiler/compile.h"
#include "engine/session.h"
#include "ops/map/elementwise.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

using program::Access;
using program::Purpose;
using program::Role;

constexpr uint32_t kRows = 6;
constexpr uint32_t kCols = 10;

OperandLayout spread(const Builder& b, uint32_t rows) {
  return matrix_layout(
      rows, kCols,
      b.is_host() ? program::map_shared(rows, kCols) : program::map_linearly(rows, kCols, b.machine().tiles));
}

/// f(in w, inout h): h = gelu(h + w), with w broadcast over the rows.
Function layer(const Builder& b) {
  const Operand w = b.argument("w", Type::f32, spread(b, 1), Purpose::parameter);
  const Operand h = b.argument("h", Type::f32, spread(b, kRows));
  const Operand sum = b.add("sum", Role::temporary, Type::f32, spread(b, kRows));
  const program::StepId body = b.sequence(
      {add(b, BinaryProblem{.op = kernels::Binary::add, .rows = kRows, .cols = kCols, .b = Broadcast::row},
           {h, w, sum}),
       add(b, UnaryProblem{.op = kernels::Unary::gelu, .rows = kRows, .cols = kCols}, {sum, h})});
  return b.function("layer", {{w, Access::in}, {h, Access::inout}}, body);
}

/// Layer l has row l of the weights.
std::shared_ptr<const compiler::Executable> network(const machine::Machine& machine, uint32_t layers) {
  program::Program program;
  const Builder b(program, machine);
  const Operand weights = b.add("weights", Role::state, Type::f32, spread(b, layers), Purpose::parameter);
  const Operand h = b.add("x", Role::inout, Type::f32, spread(b, kRows));
  const Function f = layer(b);
  std::vector<program::StepId> steps;
  for (uint32_t l = 0; l < layers; ++l) steps.push_back(b.call(f, {{weights.variable, {l, 1, 0, kCols}}, h}));
  program.set_main(b.sequence(std::move(steps)));
  return compiler::compile(std::move(program), machine);
}

TEST(Functions, AreOneLayerCalledWithOtherWeights) {
  constexpr uint32_t kLayers = 5;
  for (const machine::Machine& machine : {machine::host(2), testing::toy_machine(7)}) {
    SCOPED_TRACE(machine.name);
    engine::Session session(network(machine, kLayers));
    std::vector<float> weights(kLayers * kCols), x(kRows * kCols);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.25F * static_cast<float>(i % 7) - 0.5F;
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.125F * static_cast<float>(i % 11);
    std::vector<double> expected(x.begin(), x.end());
    for (uint32_t l = 0; l < kLayers; ++l)
      for (size_t i = 0; i < x.size(); ++i) {
        const double sum = expected[i] + weights[l * kCols + i % kCols];
        expected[i] = sum * 0.5 * std::erfc(-sum * std::sqrt(0.5));
      }
    session.write("weights",
                  {reinterpret_cast<std::byte*>(weights.data()), Type::f32, kLayers, kCols, kCols, 1});
    const engine::Binding binding{session.executable().program->find("x"), x.data(), kCols, 1};
    session.run({&binding, 1});
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], 1e-6 * kLayers) << i;
  }
}

TEST(Functions, TakeMemoryAndCodeOnce) {
  const auto of = [](uint32_t layers) { return network(testing::toy_machine(3), layers)->memory.tiles[0]; };
  const compiler::TileMemory one = of(3), many = of(24);
  using compiler::MemoryUse;
  EXPECT_EQ(one[MemoryUse::temporaries], many[MemoryUse::temporaries]);
  EXPECT_EQ(one[MemoryUse::vertex_code], many[MemoryUse::vertex_code]);
  EXPECT_EQ(one[MemoryUse::vertex_state], many[MemoryUse::vertex_state]);
  EXPECT_EQ(one[MemoryUse::control_code], many[MemoryUse::control_code]);
  EXPECT_EQ(8 * one[MemoryUse::state], many[MemoryUse::state]);
}

/// A row of the weights is spread over the tiles in another way than the function's argument.
TEST(Functions, CopyOnTilesWhatLiesElsewhere) {
  const auto copies = [](const machine::Machine& machine) {
    return network(machine, 2)->program->copy_sets().size();
  };
  EXPECT_EQ(copies(machine::host(2)), 0u);
  EXPECT_EQ(copies(testing::toy_machine(3)), 2u);
}

TEST(Functions, RefuseOtherOperands) {
  program::Program program;
  const Builder b(program, machine::host(1));
  const Function f = layer(b);
  const Operand w = b.add("v", Role::state, Type::f32, spread(b, 1));
  EXPECT_USAGE_ERROR("function 'layer' takes 2 operands, not 1", b.call(f, {w}));
  EXPECT_USAGE_ERROR("the operand h is 1 × 10 of f32; the operation needs 6 × 10 of f32", b.call(f, {w, w}));
}

}  // namespace
}  // namespace tessera::ops
