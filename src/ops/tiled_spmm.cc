#include "ops/tiled_spmm.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/tile_product/tile_product.h"
#include "ops/cut.h"
#include "program/sizes.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::Phase;
using program::Role;
using program::TileId;
using program::VariableId;

std::vector<uint32_t> part_counts(uint32_t most) {
  std::vector<uint32_t> counts;
  for (uint32_t parts = 1; parts < most; parts *= 2) counts.push_back(parts);
  counts.push_back(most);
  return counts;
}

/// One grid, and what it costs: the slowest tile's compute and the largest exchange.
TiledSpmmPlan weigh(const Pattern& p, Type type, uint32_t n, const Machine& m, uint32_t row_parts,
                    uint32_t col_parts) {
  TiledSpmmPlan plan;
  plan.row_begin = cut_rows(p.row_begin, p.block_rows(), row_parts);
  plan.cols = std::max(1U, (n + col_parts - 1) / col_parts);
  plan.col_parts = std::max(1U, (n + plan.cols - 1) / plan.cols);
  const auto size = static_cast<double>(size_of(type));
  const double b2 = static_cast<double>(p.block_size) * p.block_size;
  program::PhaseTimes slowest;
  double bytes = 0;
  for (uint32_t r = 0; r < plan.row_parts(); ++r) {
    const auto blocks = static_cast<uint32_t>(p.row_begin[plan.row_begin[r + 1]] - p.row_begin[plan.row_begin[r]]);
    const uint32_t rows = std::min(p.rows, plan.row_begin[r + 1] * p.block_size) - plan.row_begin[r] * p.block_size;
    const std::array<program::FieldView, kernels::tile_field::count> fields = {{
        {nullptr, type, blocks, p.block_size * p.block_size},
        {nullptr, Type::u16, blocks, 2},
        {nullptr, type, p.cols, plan.cols},
        {nullptr, type, rows, plan.cols},
    }};
    const std::array<int64_t, 1> params = {p.block_size};
    program::PhaseTimes cycles = kernels::tile_product_codelet.cost({fields, params}, m);
    const double gathered = (static_cast<double>(p.cols) * plan.cols + (plan.col_parts > 1 ? blocks * b2 : 0)) * size;
    const double resident = blocks * (b2 * size + 2 * size_of(Type::u16)) + static_cast<double>(rows) * plan.cols * size;
    cycles[Phase::exchange] = m.exchange_cycles + m.sync_cycles + gathered / m.exchange_bytes_per_cycle;
    cycles[Phase::sync] = m.sync_cycles;
    if (cycles.total() > slowest.total()) slowest = cycles;
    bytes = std::max(bytes, gathered + resident + static_cast<double>(p.cols) * n * size / m.tiles +
                                static_cast<double>(program::kStackBytes));
  }
  plan.chosen = {fmt::format("row_parts={} col_parts={}", plan.row_parts(), plan.col_parts),
                 slowest.scaled(1 / m.clock_hz), static_cast<uint64_t>(bytes), ""};
  if (plan.chosen.max_tile_bytes > m.tile_bytes)
    plan.chosen.rejected = fmt::format("{} bytes a tile of {}", plan.chosen.max_tile_bytes, m.tile_bytes);
  return plan;
}

uint32_t forced(const ForcedKnobs& force, const std::string& name, uint32_t tiles) {
  const auto it = force.find(name);
  if (it == force.end()) return 0;
  if (it->second < 1 || it->second > tiles)
    throw UsageError(fmt::format("{}={}: a machine of {} tiles takes 1 to {}", name, it->second, tiles, tiles));
  return static_cast<uint32_t>(it->second);
}

std::vector<TiledSpmmPlan> all_grids(const Pattern& pattern, Type type, uint32_t n, const Machine& m,
                                     const ForcedKnobs& force) {
  for (const auto& [name, value] : force)
    if (name != "row_parts" && name != "col_parts")
      throw UsageError(fmt::format("this plan has no knob '{}': it has row_parts, col_parts", name));
  const uint32_t rows = forced(force, "row_parts", m.tiles);
  const uint32_t cols = forced(force, "col_parts", m.tiles);
  std::vector<TiledSpmmPlan> plans;
  std::set<std::string> seen;
  for (uint32_t r : rows != 0 ? std::vector{rows} : part_counts(m.tiles))
    for (uint32_t c : cols != 0 ? std::vector{cols} : part_counts(m.tiles)) {
      if (uint64_t{r} * c > m.tiles) continue;
      TiledSpmmPlan plan = weigh(pattern, type, n, m, r, c);
      if (seen.insert(plan.chosen.cut).second) plans.push_back(std::move(plan));
    }
  if (plans.empty()) throw UsageError(fmt::format("row_parts × col_parts is more than the machine's {} tiles", m.tiles));
  return plans;
}

/// Block row and column of every block, rows counted from the first of their part.
std::shared_ptr<const std::byte> block_places(const Pattern& p, const TiledSpmmPlan& plan, Type index) {
  auto bytes = std::make_shared<std::vector<std::byte>>(p.blocks() * 2 * size_of(index));
  std::byte* at = bytes->data();
  const auto put = [&](uint32_t value) {
    const auto narrow = static_cast<uint16_t>(value);
    std::memcpy(at, index == Type::u16 ? static_cast<const void*>(&narrow) : &value, size_of(index));
    at += size_of(index);
  };
  for (uint32_t part = 0; part < plan.row_parts(); ++part)
    for (uint32_t r = plan.row_begin[part]; r < plan.row_begin[part + 1]; ++r)
      for (uint64_t block = p.row_begin[r]; block < p.row_begin[r + 1]; ++block) {
        put(r - plan.row_begin[part]);
        put(p.columns[block]);
      }
  return {bytes, bytes->data()};
}

}  // namespace

TiledSpmmPlan plan_tiled_spmm(const Pattern& pattern, Type type, uint32_t n, const Machine& machine,
                              const ForcedKnobs& force) {
  if (type != Type::f32 && type != Type::f16)
    throw UsageError(fmt::format("a tiled machine computes in f32 or f16, not in {}", name_of(type)));
  std::vector<TiledSpmmPlan> plans = all_grids(pattern, type, n, machine, force);
  std::vector<PlanCandidate> candidates;
  for (const TiledSpmmPlan& plan : plans) candidates.push_back(plan.chosen);
  const bool any_fits = std::any_of(candidates.begin(), candidates.end(), [](const auto& c) { return c.rejected.empty(); });
  const auto smallest = std::min_element(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.max_tile_bytes < b.max_tile_bytes;
  });
  const size_t best = any_fits ? choose_fastest(candidates) : static_cast<size_t>(smallest - candidates.begin());
  TiledSpmmPlan plan = std::move(plans[best]);
  plan.candidates = std::move(candidates);
  return plan;
}

SpmmProgram build_tiled_spmm(const Pattern& p, Type type, uint32_t n, const TiledSpmmPlan& plan,
                             const Machine& machine) {
  SpmmProgram out;
  program::Program& program = out.program;
  const uint32_t b = p.block_size;
  const auto blocks = static_cast<uint32_t>(p.blocks());
  const Type index = std::max(p.block_rows(), p.block_cols()) <= 0xFFFF ? Type::u16 : Type::u32;

  std::vector<MappedBox> values_on;
  std::vector<MappedBox> places_on;
  std::vector<MappedBox> y_on;
  std::vector<Box> values_of;
  std::vector<Box> places_of;
  std::vector<Box> x_of;
  std::vector<Box> y_of;
  for (uint32_t r = 0; r < plan.row_parts(); ++r) {
    const auto first = static_cast<uint32_t>(p.row_begin[plan.row_begin[r]]);
    const uint32_t count = static_cast<uint32_t>(p.row_begin[plan.row_begin[r + 1]]) - first;
    const uint32_t row = std::min(p.rows, plan.row_begin[r] * b);
    const uint32_t rows = std::min(p.rows, plan.row_begin[r + 1] * b) - row;
    const TileId home = r * plan.col_parts;
    values_on.push_back({{first, count, 0, b * b}, home});
    places_on.push_back({{first, count, 0, 2}, home});
    for (uint32_t c = 0; c < plan.col_parts; ++c) {
      const uint32_t col = c * plan.cols;
      const uint32_t cols = std::min(plan.cols, n - col);
      values_of.push_back(values_on.back().box);
      places_of.push_back(places_on.back().box);
      x_of.push_back({0, p.cols, col, cols});
      y_of.push_back({row, rows, col, cols});
      y_on.push_back({y_of.back(), home + c});
    }
  }

  SpmmVariables& v = out.variables;
  v.values = program.add({"W.values", type, blocks, b * b, Role::input, std::move(values_on), nullptr});
  const VariableId places =
      program.add({"W.blocks", index, blocks, 2, Role::constant, std::move(places_on), block_places(p, plan, index)});
  v.x = program.add({"X", type, p.cols, n, Role::input, program::map_linearly(p.cols, n, machine.tiles), nullptr});
  v.y = program.add({"Y", type, p.rows, n, Role::output, std::move(y_on), nullptr});

  program::VertexGroup group;
  group.codelet = &kernels::tile_product_codelet;
  group.tiles = plan.tiles_used();
  group.fields = {{v.values, BoxSeries::table(std::move(values_of))},
                  {places, BoxSeries::table(std::move(places_of))},
                  {v.x, BoxSeries::table(std::move(x_of))},
                  {v.y, BoxSeries::table(std::move(y_of))}};
  group.params = {program::Param(b)};
  program::ComputeSet set{"multiply", Phase::compute, {}};
  set.groups.push_back(std::move(group));
  program.set_main(program.execute(std::move(set)));
  return out;
}

std::string to_string(const TiledSpmmPlan& plan) {
  return fmt::format("{} on {} tiles; predicted {:.3g} us, {} bytes on the fullest tile", plan.chosen.cut,
                     plan.tiles_used(), plan.chosen.total() * 1e6, plan.chosen.max_tile_bytes);
}

}  // namespace tessera::ops
