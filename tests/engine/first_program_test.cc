// The example of docs/tile-programs.md.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "support/toy_machine.h"

namespace {

using namespace tessera;
using program::Access;
using program::BoxSeries;
using program::Phase;
using program::Role;

// The code of a vertex: y = sum of the elements of x.
constexpr std::array<program::FieldSpec, 2> kSumFields = {{{"x"}, {"y", Access::out}}};

void sum(const program::Vertex& v) {
  const program::FieldView& x = v.fields[0];
  float total = 0;
  for (uint32_t i = 0; i < x.rows; ++i)
    for (uint32_t j = 0; j < x.cols; ++j) total += x.matrix<const float>()(i, j);
  v.fields[1].matrix<float>()(0, 0) = total;
}

program::PhaseTimes sum_cost(const program::Vertex& v, const machine::Machine& m) {
  program::PhaseTimes cycles;
  cycles[Phase::compute] = static_cast<double>(v.fields[0].elements()) * 4 / m.load_bytes_per_cycle;
  return cycles;
}

const program::Codelet kSum = {
    .name = "sum", .fields = kSumFields, .params = {}, .reference = sum, .cost = sum_cost, .code_bytes = 64};

// Sums a 4 × 8 matrix: every tile sums a row, then tile 0 adds the partial sums.
program::Program sum_of_matrix() {
  program::Program p;
  const auto x = p.add({"x", Type::f32, 4, 8, Role::input, program::map_rows_to_tiles(4, 8), {}});
  const auto partial =
      p.add({"partial", Type::f32, 4, 1, Role::temporary, program::map_rows_to_tiles(4, 1), {}});
  const auto y = p.add({"y", Type::f32, 1, 1, Role::output, program::map_to_tile(1, 1, 0), {}});

  const program::VertexGroup rows = {.codelet = &kSum,
                                     .first_tile = 0,
                                     .tiles = 4,
                                     .fields = {{x, BoxSeries::stepped({0, 1, 0, 8}, {1, 0})},
                                                {partial, BoxSeries::stepped({0, 1, 0, 1}, {1, 0})}},
                                     .params = {}};
  const program::VertexGroup all = {
      .codelet = &kSum,
      .first_tile = 0,
      .tiles = 1,
      .fields = {{partial, BoxSeries::same({0, 4, 0, 1})}, {y, BoxSeries::same({0, 1, 0, 1})}},
      .params = {}};
  p.set_main(p.sequence(
      {p.execute({"sum rows", Phase::compute, {rows}}), p.execute({"sum partials", Phase::reduce, {all}})}));
  return p;
}

TEST(FirstProgram, SumsAMatrixOnFourTiles) {
  const auto executable = compiler::compile(sum_of_matrix(), tessera::testing::toy_machine(4));
  const engine::Engine engine(executable);

  std::array<float, 32> x{};
  std::iota(x.begin(), x.end(), 1.0F);
  float y = 0;
  const engine::Binding bindings[] = {{0, x.data(), 8, 1}, {2, &y, 1, 1}};
  const engine::Profile profile = engine.run(bindings);

  EXPECT_EQ(y, 32 * 33 / 2);
  EXPECT_EQ(profile.supersteps, 2u);
  // The partial sums are gathered on tile 0, three of them from other tiles.
  EXPECT_EQ(executable->sets[1].before.transfers.size(), 4u);
  EXPECT_EQ(program::to_string(*executable->program), R"(variables
  x: input f32 4 × 8, [0:1, 0:8] on tile 0, [1:2, 0:8] on tile 1, [2:3, 0:8] on tile 2, … 4 boxes
  partial: f32 4 × 1, [0:1, 0:1] on tile 0, [1:2, 0:1] on tile 1, [2:3, 0:1] on tile 2, … 4 boxes
  y: output f32 1 × 1, [0:1, 0:1] on tile 0
main
  execute sum rows (compute)
    sum on tiles 0:4
      x = x [0:1, 0:8], [1:2, 0:8], [2:3, 0:8], …
      y = partial [0:1, 0:1], [1:2, 0:1], [2:3, 0:1], …
  execute sum partials (reduce)
    sum on tiles 0:1
      x = partial [0:4, 0:1]
      y = y [0:1, 0:1]
)");
}

}  // namespace
