#include "ops/tiled_spmm.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "kernels/tile_product/tile_product.h"
#include "ops/cut.h"
#include "program/sizes.h"
#include "program/traffic.h"

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

Type index_type(const Pattern& p) {
  return std::max(p.block_rows(), p.block_cols()) <= 0xFFFF ? Type::u16 : Type::u32;
}

std::vector<uint32_t> part_counts(uint32_t most) {
  std::vector<uint32_t> counts;
  for (uint32_t parts = 1; parts < most; parts *= 2) counts.push_back(parts);
  counts.push_back(most);
  return counts;
}

uint32_t blocks_before(const Pattern& p, uint32_t block_row) {
  return static_cast<uint32_t>(p.row_begin[block_row]);
}

/// Where everything lies, in boxes by tile. Of a row part, the values are spread over the tiles of
/// its column parts, and every tile has the places of all the part's blocks.
struct Placement {
  std::vector<MappedBox> values;
  std::vector<MappedBox> places;
  std::vector<MappedBox> x;
  std::vector<MappedBox> y;  ///< box i on tile i: what the tile computes

  Placement(const Pattern& p, uint32_t n, const TiledSpmmPlan& plan, uint32_t tiles)
      : x(program::map_linearly(p.cols, n, tiles)) {
    const uint32_t b = p.block_size;
    uint32_t next_place = 0;
    for (uint32_t r = 0; r < plan.row_parts(); ++r) {
      const uint32_t first = blocks_before(p, plan.row_begin[r]);
      const uint32_t count = blocks_before(p, plan.row_begin[r + 1]) - first;
      const uint32_t row = std::min(p.rows, plan.row_begin[r] * b);
      const uint32_t rows = std::min(p.rows, plan.row_begin[r + 1] * b) - row;
      for (uint32_t c = 0; c < plan.col_parts; ++c) {
        const TileId tile = r * plan.col_parts + c;
        const auto share = [&](uint64_t i) { return static_cast<uint32_t>(count * i / plan.col_parts); };
        values.push_back({{first + share(c), share(c + 1) - share(c), 0, b * b}, tile});
        places.push_back({{next_place, count, 0, 2}, tile});
        next_place += count;
        const uint32_t col = c * plan.cols;
        y.push_back({{row, rows, col, std::min(plan.cols, n - col)}, tile});
      }
    }
  }
};

/// Exchange and memory of every tile, as the compiler will find them.
class TileCount {
 public:
  TileCount(const Pattern& p, Type type, const TiledSpmmPlan& plan, const Placement& placement, const Machine& m)
      : p_(p), size_(size_of(type)), plan_(plan), placement_(placement), traffic_(m), bytes_(m.tiles) {
    count_values();
    count_x();
    count_resident();
    traffic_.count();
    for (TileId tile = 0; tile < m.tiles; ++tile) bytes_[tile] += traffic_.code_bytes(tile);
  }

  program::PhaseTimes exchange_cycles() const { return traffic_.cycles(); }

  uint64_t max_bytes() const { return *std::max_element(bytes_.begin(), bytes_.end()); }

 private:
  enum Operand : VariableId { kValues, kX };

  /// Every tile of a row part wants all its values.
  void count_values() {
    if (plan_.col_parts == 1) return;
    for (uint32_t r = 0; r < plan_.row_parts(); ++r)
      for (uint32_t to = 0; to < plan_.col_parts; ++to)
        for (uint32_t from = 0; from < plan_.col_parts; ++from) {
          const MappedBox& share = placement_.values[r * plan_.col_parts + from];
          const TileId tile = r * plan_.col_parts + to;
          traffic_.add(share.tile, tile, kValues, share.box, size_);
          bytes_[tile] += share.box.elements() * size_;
        }
  }

  /// Every tile wants all rows of its columns.
  void count_x() {
    for (const MappedBox& want : placement_.y) {
      const Box wanted{0, p_.cols, want.box.col, want.box.cols};
      if (placement_.x.size() == 1 && placement_.x[0].tile == want.tile) continue;
      for (const MappedBox& have : placement_.x)
        traffic_.add(have.tile, want.tile, kX, intersection(have.box, wanted), size_);
      bytes_[want.tile] += wanted.elements() * size_;
    }
  }

  void count_resident() {
    constexpr uint64_t kPadding = 16;  // alignment, at most, of each of a tile's pieces
    constexpr uint64_t kPieces = 6;
    const uint64_t index_bytes = size_of(index_type(p_));
    for (const auto* mapping : {&placement_.values, &placement_.x, &placement_.y})
      for (const MappedBox& mapped : *mapping) bytes_[mapped.tile] += mapped.box.elements() * size_;
    for (const MappedBox& mapped : placement_.places) bytes_[mapped.tile] += mapped.box.elements() * index_bytes;
    for (const MappedBox& used : placement_.y)
      bytes_[used.tile] += program::vertex_state_bytes(kernels::tile_product_codelet) +
                                 program::control_code_bytes(1) + kernels::tile_product_codelet.code_bytes;
    for (uint64_t& bytes : bytes_) bytes += program::kStackBytes + kPieces * kPadding;
  }

  const Pattern& p_;
  uint64_t size_;
  const TiledSpmmPlan& plan_;
  const Placement& placement_;
  program::Traffic traffic_;
  std::vector<uint64_t> bytes_;  ///< by tile
};

program::PhaseTimes compute_cycles(const Pattern& p, Type type, const Placement& placement, const Machine& m) {
  const std::array<int64_t, 1> params = {p.block_size};
  program::PhaseTimes slowest;
  for (size_t tile = 0; tile < placement.y.size(); ++tile) {
    const Box& y = placement.y[tile].box;
    const uint32_t blocks = placement.places[tile].box.rows;
    const std::array<program::FieldView, kernels::tile_field::count> fields = {{
        {nullptr, type, blocks, p.block_size * p.block_size},
        {nullptr, index_type(p), blocks, 2},
        {nullptr, type, p.cols, y.cols},
        {nullptr, type, y.rows, y.cols},
    }};
    const program::PhaseTimes cycles = kernels::tile_product_codelet.cost({fields, params}, m);
    if (cycles.total() > slowest.total()) slowest = cycles;
  }
  return slowest;
}

/// One grid, and what it costs.
TiledSpmmPlan weigh(const Pattern& p, Type type, uint32_t n, const Machine& m, uint32_t row_parts,
                    uint32_t col_parts) {
  TiledSpmmPlan plan;
  plan.row_begin = cut_rows(p.row_begin, p.block_rows(), row_parts);
  plan.cols = std::max(1U, (n + col_parts - 1) / col_parts);
  plan.col_parts = std::max(1U, (n + plan.cols - 1) / plan.cols);
  const Placement placement(p, n, plan, m.tiles);
  const TileCount count(p, type, plan, placement, m);
  program::PhaseTimes cycles = compute_cycles(p, type, placement, m);
  cycles += count.exchange_cycles();
  plan.chosen = {fmt::format("row_parts={} col_parts={}", plan.row_parts(), plan.col_parts),
                 cycles.scaled(1 / m.clock_hz), count.max_bytes(), ""};
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
  return plans;
}

/// Block row and column of every block, rows counted from the first of their part: for each part
/// once a column part.
std::shared_ptr<const std::byte> block_places(const Pattern& p, const TiledSpmmPlan& plan) {
  const Type index = index_type(p);
  auto bytes = std::make_shared<std::vector<std::byte>>(p.blocks() * plan.col_parts * 2 * size_of(index));
  std::byte* at = bytes->data();
  const auto put = [&](uint32_t value) {
    const auto narrow = static_cast<uint16_t>(value);
    std::memcpy(at, index == Type::u16 ? static_cast<const void*>(&narrow) : &value, size_of(index));
    at += size_of(index);
  };
  for (uint32_t part = 0; part < plan.row_parts(); ++part)
    for (uint32_t c = 0; c < plan.col_parts; ++c)
      for (uint32_t r = plan.row_begin[part]; r < plan.row_begin[part + 1]; ++r)
        for (uint64_t block = p.row_begin[r]; block < p.row_begin[r + 1]; ++block) {
          put(r - plan.row_begin[part]);
          put(p.columns[block]);
        }
  return {bytes, bytes->data()};
}

}  // namespace

void check_tiled_spmm(Type type, const Machine& machine, const ForcedKnobs& force) {
  if (type != Type::f32 && type != Type::f16)
    throw UsageError(fmt::format("a tiled machine computes in f32 or f16, not in {}", name_of(type)));
  uint64_t parts = 1;
  for (const auto& [name, value] : force) {
    if (name != "row_parts" && name != "col_parts")
      throw UsageError(fmt::format("this plan has no knob '{}': it has row_parts, col_parts", name));
    parts *= forced(force, name, machine.tiles);
  }
  if (parts > machine.tiles)
    throw UsageError(fmt::format("row_parts × col_parts is {}, more than the machine's {} tiles", parts, machine.tiles));
}

TiledSpmmPlan plan_tiled_spmm(const Pattern& pattern, Type type, uint32_t n, const Machine& machine,
                              const ForcedKnobs& force) {
  check_tiled_spmm(type, machine, force);
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
  const uint32_t b2 = p.block_size * p.block_size;
  const auto blocks = static_cast<uint32_t>(p.blocks());
  Placement placement(p, n, plan, machine.tiles);

  std::vector<Box> values_of;
  std::vector<Box> places_of;
  std::vector<Box> x_of;
  std::vector<Box> y_of;
  for (size_t tile = 0; tile < placement.y.size(); ++tile) {
    const uint32_t part = static_cast<uint32_t>(tile) / plan.col_parts;
    const uint32_t first = blocks_before(p, plan.row_begin[part]);
    values_of.push_back({first, blocks_before(p, plan.row_begin[part + 1]) - first, 0, b2});
    places_of.push_back(placement.places[tile].box);
    y_of.push_back(placement.y[tile].box);
    x_of.push_back({0, p.cols, y_of.back().col, y_of.back().cols});
  }

  SpmmVariables& v = out.variables;
  v.values = program.add({"W.values", type, blocks, b2, Role::input, std::move(placement.values), nullptr});
  const VariableId places = program.add({"W.blocks", index_type(p), blocks * plan.col_parts, 2, Role::constant,
                                         std::move(placement.places), block_places(p, plan)});
  v.x = program.add({"X", type, p.cols, n, Role::input, std::move(placement.x), nullptr});
  v.y = program.add({"Y", type, p.rows, n, Role::output, std::move(placement.y), nullptr});

  program::VertexGroup group;
  group.codelet = &kernels::tile_product_codelet;
  group.tiles = plan.tiles_used();
  group.fields = {{v.values, BoxSeries::table(std::move(values_of))},
                  {places, BoxSeries::table(std::move(places_of))},
                  {v.x, BoxSeries::table(std::move(x_of))},
                  {v.y, BoxSeries::table(std::move(y_of))}};
  group.params = {program::Param(p.block_size)};
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
