#include "studies/butterfly/first_programs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "bound/bound_program.h"
#include "check/verification.h"
#include "compiler/memory.h"
#include "kernels/tile/scalar_product/codelet.h"
#include "studies/paper/product_cell.h"
#include "studies/paper/program_size.h"

namespace tessera::studies::butterfly {
namespace {

using program::Box;
using program::BoxSeries;
using program::Phase;
using program::Role;

// Executing these takes about a second.
constexpr uint32_t kLargestExecuted = 256;

/// Row r of a square matrix on tile r · tiles / size, or of a larger one on r mod tiles.
std::vector<program::MappedBox> spread_rows(uint32_t size, uint32_t tiles) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t r = 0; r < size; ++r) {
    const uint64_t tile = size <= tiles ? uint64_t{r} * tiles / size : r % tiles;
    mapping.push_back({{r, 1, 0, size}, static_cast<program::TileId>(tile)});
  }
  return mapping;
}

/// Elements [t · run, (t + 1) · run) of a matrix, row by row, on tile t.
std::vector<program::MappedBox> spread_runs(uint32_t size, uint32_t run) {
  const uint64_t all = uint64_t{size} * size;
  std::vector<program::MappedBox> mapping;
  for (uint64_t begin = 0; begin < all;) {
    const uint64_t row = begin / size;
    const uint64_t end = std::min({begin / run * run + run, (row + 1) * size, all});
    mapping.push_back({{static_cast<uint32_t>(row), 1, static_cast<uint32_t>(begin % size),
                        static_cast<uint32_t>(end - begin)},
                       static_cast<program::TileId>(begin / run)});
    begin = end;
  }
  return mapping;
}

/// Vertices for elements first, first + 1, … of C.
program::VertexGroup dots(uint32_t size, uint64_t first, program::TileId tile, uint32_t tiles,
                          uint32_t per_tile) {
  std::vector<Box> rows, columns, sums;
  const uint64_t count = uint64_t{tiles} * per_tile;
  for (uint64_t e = first; e < first + count; ++e) {
    const auto row = static_cast<uint32_t>(e / size), column = static_cast<uint32_t>(e % size);
    rows.push_back({row, 1, 0, size});
    columns.push_back({column, 1, 0, size});
    sums.push_back({row, 1, column, 1});
  }
  return {.codelet = &kernels::scalar_dot_codelet,
          .first_tile = tile,
          .tiles = tiles,
          .per_tile = per_tile,
          .fields = {{0, BoxSeries::table(std::move(rows))},
                     {1, BoxSeries::table(std::move(columns))},
                     {2, BoxSeries::table(std::move(sums))}},
          .params = {}};
}

std::vector<program::MappedBox> spread_blocks(uint32_t block, uint32_t grid) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t i = 0; i < grid; ++i)
    for (uint32_t j = 0; j < grid; ++j)
      mapping.push_back({{i * block, block, j * block, block}, i * grid + j});
  return mapping;
}

/// Room for one block on each tile, below one another.
program::VariableId add_blocks(program::Program& p, const std::string& name, uint32_t block, uint32_t tiles) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t t = 0; t < tiles; ++t) mapping.push_back({{t * block, block, 0, block}, t});
  return p.add({name, Type::f32, tiles * block, block, Role::temporary, std::move(mapping), {}});
}

/// C as W · X in float64: W = A, X = B.
void verify_first_programs(const FirstProgram& first, const bound::BoundProgram& program, uint32_t size,
                           const Setting& setting, Result& result) {
  const uint64_t count = uint64_t{size} * size;
  SparseMatrix a;
  a.pattern.rows = a.pattern.cols = size;
  a.values.resize(count);
  a.pattern.crow_indices.assign(1, 0);
  for (uint32_t i = 0; i < size; ++i) {
    for (uint32_t j = 0; j < size; ++j) a.pattern.col_indices.push_back(j);
    a.pattern.crow_indices.push_back(a.pattern.col_indices.size());
  }
  std::vector<float> b(count), c(count);
  base::RandomStream(1, 0, 1).fill_symmetric(a.values);
  base::RandomStream(1, 0, 2).fill_symmetric(b);
  program.run(bound::Arrays(program).add(a.values.data()).add(b.data()).add(c.data()));
  const bool t = first.is_b_transposed;
  const check::Verification v =
      check::verify_product({a, {b.data(), t ? 1 : size, t ? size : 1}, {c.data(), size, 1}, size},
                            check::Extent::sample, 1, setting.threads);
  result.verified = v.verified;
  result.max_rel_error = v.max_rel_error;
  result.tolerance = v.tolerance;
}

Result run_first_programs(const FirstProgram& first, uint32_t size, const Setting& setting) {
  const bound::BoundProgram program(first.program, setting.machine);
  Result result;
  enter_size(program.executable(), result);
  result.fits = program.fits();
  if (!result.fits) {
    result.reason = compiler::overflow_text(program.memory());
    return result;
  }
  const double cycles = program.estimate().cycles.total();
  result.values["cycles"] = cycles;
  result.values["seconds"] = setting.machine.seconds(cycles);
  const uint64_t bytes = first.program.variable(2).bytes();
  enter_transfers(setting.machine, 2 * bytes, bytes, result);
  enter_rate(2.0 * size * size * size, result);
  if (setting.verify && size <= kLargestExecuted)
    verify_first_programs(first, program, size, setting, result);
  return result;
}

}  // namespace

FirstProgram naive_product(uint32_t size, uint32_t tiles) {
  const uint64_t all = uint64_t{size} * size;
  const auto per_tile = static_cast<uint32_t>((all + tiles - 1) / tiles);
  const auto full = static_cast<uint32_t>(all / per_tile);
  const auto rest = static_cast<uint32_t>(all % per_tile);
  program::Program p;
  p.add({"A", Type::f32, size, size, Role::input, spread_rows(size, tiles), {}});
  p.add({"B transposed", Type::f32, size, size, Role::input, spread_rows(size, tiles), {}});
  p.add({"C", Type::f32, size, size, Role::output, spread_runs(size, per_tile), {}});
  program::ComputeSet set{"rows times columns", Phase::compute, {dots(size, 0, 0, full, per_tile)}};
  if (rest != 0) set.groups.push_back(dots(size, uint64_t{full} * per_tile, full, 1, rest));
  p.set_main(p.execute(std::move(set)));
  return {std::move(p), true};
}

FirstProgram blocked_product(uint32_t size, uint32_t grid) {
  const uint32_t block = size / grid, tiles = grid * grid;
  program::Program p;
  for (const char* name : {"A", "B"})
    p.add({name, Type::f32, size, size, Role::input, spread_blocks(block, grid), {}});
  p.add({"C", Type::f32, size, size, Role::output, spread_blocks(block, grid), {}});
  const BoxSeries own = BoxSeries::stepped({0, block, 0, block}, {block, 0});
  std::vector<program::StepId> steps;
  for (uint32_t k = 0; k < grid; ++k) {
    const program::VariableId a = add_blocks(p, fmt::format("A {}", k), block, tiles);
    const program::VariableId b = add_blocks(p, fmt::format("B {}", k), block, tiles);
    const auto copy_of = [&](program::VariableId from, program::VariableId to, BoxSeries source) {
      return program::CopyGroup{.from = from,
                                .to = to,
                                .count = tiles,
                                .source = std::move(source),
                                .target = own,
                                .source_rows = {},
                                .source_offset = {},
                                .target_offset = {}};
    };
    steps.push_back(
        p.copy({fmt::format("blocks {}", k),
                {copy_of(0, a, BoxSeries::grid({0, block, k * block, block}, {block, 0}, grid, {0, 0})),
                 copy_of(1, b, BoxSeries::grid({k * block, block, 0, block}, {0, 0}, grid, {0, block}))}}));
    steps.push_back(
        p.execute({fmt::format("multiply {}", k),
                   Phase::compute,
                   {{.codelet = &kernels::scalar_block_codelet,
                     .first_tile = 0,
                     .tiles = tiles,
                     .per_tile = 1,
                     .fields = {{a, own},
                                {b, own},
                                {2, BoxSeries::grid({0, block, 0, block}, {block, 0}, grid, {0, block})}},
                     .params = {int64_t{k != 0}}}}}));
  }
  p.set_main(p.sequence(std::move(steps)));
  return {std::move(p), false};
}

Result run_naive(uint32_t size, const Setting& setting) {
  return run_first_programs(naive_product(size, setting.machine.tiles), size, setting);
}

Result run_blocked(uint32_t size, const Setting& setting) {
  uint32_t grid = 1;  // the largest power of two for which there are tiles: 32 on 1,472
  while (2 * grid <= size && 4 * grid * grid <= setting.machine.tiles) grid *= 2;
  return run_first_programs(blocked_product(size, grid), size, setting);
}

}  // namespace tessera::studies::butterfly
