#include "ops/tally.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <span>
#include <unordered_map>
#include <vector>

#include "program/box_index.h"
#include "program/cycles.h"
#include "program/sizes.h"
#include "program/traffic.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::Access;
using program::Box;
using program::Field;
using program::Phase;
using program::PhaseTimes;
using program::Program;
using program::Role;
using program::TileId;
using program::Variable;
using program::VariableId;
using program::VertexGroup;

constexpr uint64_t kAlignment = 16;  // of a piece of storage, at most

uint64_t aligned(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Storage on a tile from one step of the schedule to another.
struct Piece {
  uint64_t size;  ///< of its elements
  uint64_t room;  ///< with what is read beyond them and the gap to the next piece, at most
  uint32_t first;
  uint32_t last;
  bool interleaved = false;  ///< belongs into that region of the memory
  uint64_t begin = 0;

  bool lives_with(const Piece& other) const { return first <= other.last && other.first <= last; }
};

/// Where the last of some pieces ends when they are placed as the compiler places them: the largest
/// first, each where it first fits.
uint64_t placed_end(std::span<Piece> pieces) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.size > b.size; });
  std::vector<Piece> placed;  // by first byte
  uint64_t end = 0;
  for (Piece piece : pieces) {
    for (const Piece& other : placed) {
      if (other.begin + other.room <= piece.begin || !other.lives_with(piece)) continue;
      if (piece.begin + piece.room <= other.begin) break;
      piece.begin = other.begin + other.room;
    }
    end = std::max(end, piece.begin + piece.room);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), piece,
                                   [](const Piece& a, const Piece& b) { return a.begin < b.begin; }),
                  piece);
  }
  return end;
}

class Counter {
 public:
  Counter(const Program& program, const Machine& machine, const Foresight& foresight)
      : program_(program),
        machine_(machine),
        foresight_(foresight),
        traffic_(machine),
        tiles_(machine.tiles) {
    std::vector<Box> boxes;
    for (const Variable& variable : program.variables()) {
      boxes.clear();
      for (const program::MappedBox& mapped : variable.mapping) boxes.push_back(mapped.box);
      mappings_.push_back({program::BoxIndex(boxes), {}});
    }
    uses_.resize(program.variables().size());
  }

  Tally count() {
    walk(program_.main(), 1);
    place_variables();
    Tally tally{cycles_, 0};
    for (Tile& tile : tiles_) tally.max_tile_bytes = std::max(tally.max_tile_bytes, bytes_of(tile));
    return tally;
  }

 private:
  struct Tile {
    uint64_t code = program::kStackBytes;  ///< and the stack
    uint64_t always_live = 0;
    bool has_two_regions = false;  ///< something that is always alive belongs into the interleaved one
    std::vector<Piece> pieces;
    std::vector<const program::Codelet*> codelets;
  };
  struct Mapping {
    program::BoxIndex index;
    program::BoxIndex::Cursor cursor;
  };
  struct Use {
    uint32_t first = ~0U;
    uint32_t last = 0;
    uint64_t over_read = 0;
    bool interleaved = false;
  };

  // The schedule.

  void walk(program::StepId id, double times) {
    if (id == program::kNoStep) return;
    const program::Step& step = program_.steps().at(id);
    if (const auto* sequence = std::get_if<program::Sequence>(&step)) {
      for (program::StepId inner : sequence->steps) walk(inner, times);
    } else if (const auto* execute = std::get_if<program::Execute>(&step)) {
      count(program_.compute_sets()[execute->set], times);
    } else if (const auto* copy = std::get_if<program::Copy>(&step)) {
      count(program_.copy_sets()[copy->set], times);
    } else if (const auto* repeat = std::get_if<program::Repeat>(&step)) {
      in_loop([&] {
        if (repeat->counter) touch(*repeat->counter);
        walk(repeat->body, times * repeat->count);
      });
    } else if (const auto* loop = std::get_if<program::While>(&step)) {
      in_loop([&] { walk(*loop, times); });
    } else {
      assert(false && "a tally does not follow conditions and calls");
    }
  }

  /// The test, as often as it runs; the body with what is there in each round. Code and storage are
  /// counted once, also of a body that never runs.
  void walk(const program::While& loop, double times) {
    walk(loop.test, times * (foresight_.rounds + 1));
    touch(loop.condition);
    const uint32_t body = position_;
    for (uint32_t round = 1; round <= std::max(1U, foresight_.rounds); ++round) {
      position_ = body;
      round_ = round;
      walk(loop.body, round <= foresight_.rounds ? times : 0);
    }
  }

  /// What a loop touches is alive during all of it.
  template <class Body>
  void in_loop(const Body& body) {
    const uint32_t begin = position_;
    body();
    const uint32_t end = std::max(begin, position_ == 0 ? 0 : position_ - 1);
    for (Use& use : uses_)
      if (use.first <= use.last && use.last >= begin) {
        use.first = std::min(use.first, begin);
        use.last = std::max(use.last, end);
      }
  }

  void touch(VariableId variable) {
    Use& use = uses_[variable];
    use.first = std::min(use.first, position_);
    use.last = std::max(use.last, position_);
  }

  void count(const program::ComputeSet& set, double times) {
    for (const VertexGroup& group : set.groups)
      for (const Field& field : group.fields) touch(field.variable);
    const auto [known, is_new] = exchanges_of_sets_.try_emplace(&set);
    if (is_new) known->second = bring_all(set);
    PhaseTimes cycles = slowest_tile(set);
    cycles += known->second;
    cycles_ += cycles.scaled(times);
    ++position_;
  }

  PhaseTimes slowest_tile(const program::ComputeSet& set) const {
    std::vector<PhaseTimes> of_tile(tiles_.size());
    for (const VertexGroup& group : set.groups)
      for (uint32_t i = 0; i < group.count(); ++i) of_tile[group.tile_of(i)] += cost_of(group, i);
    PhaseTimes slowest;
    for (const PhaseTimes& cycles : of_tile)
      if (cycles.total() > slowest.total()) slowest = cycles;
    return slowest;
  }

  /// What a compute set has beside its vertices' cycles: storage, code, exchange and fixed costs.
  PhaseTimes bring_all(const program::ComputeSet& set) {
    std::vector<std::pair<TileId, uint32_t>> groups;  // of a tile
    for (const VertexGroup& group : set.groups) {
      for (size_t f = 0; f < group.fields.size(); ++f) {
        Use& use = uses_[group.fields[f].variable];
        use.over_read = std::max<uint64_t>(use.over_read, group.codelet->fields[f].over_read);
        use.interleaved |= is_interleaved(group.codelet->fields[f]);
      }
      for (uint32_t i = 0; i < group.count(); ++i) {
        const TileId tile = group.tile_of(i);
        for (size_t f = 0; f < group.fields.size(); ++f)
          bring(group.fields[f], group.codelet->fields[f], i, tile);
        tiles_[tile].code += program::vertex_state_bytes(*group.codelet);
        if (i % group.per_tile == 0) groups.emplace_back(tile, 1), use_code(tiles_[tile], group.codelet);
      }
    }
    std::sort(groups.begin(), groups.end());
    size_t used = 0;
    for (size_t i = 0; i < groups.size(); ++used) {
      const TileId tile = groups[i].first;
      uint32_t here = 0;
      for (; i < groups.size() && groups[i].first == tile; ++i) ++here;
      tiles_[tile].code += program::control_code_bytes(here);
    }
    PhaseTimes cycles = exchange();
    cycles[Phase::sync] += program::sync_cycles(machine_, used);
    cycles[Phase::control] += program::superstep_cycles(machine_, used);
    return cycles;
  }

  static void use_code(Tile& tile, const program::Codelet* codelet) {
    if (std::find(tile.codelets.begin(), tile.codelets.end(), codelet) != tile.codelets.end()) return;
    tile.codelets.push_back(codelet);
    tile.code += codelet->code_bytes;
  }

  PhaseTimes cost_of(const VertexGroup& group, uint32_t vertex) const {
    std::array<program::FieldView, program::kMaxFields> fields;
    std::array<int64_t, program::kMaxParams> params;
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const Variable& variable = program_.variable(group.fields[f].variable);
      const Box box = field_box(program_, group.fields[f], vertex);
      fields[f] = {nullptr, variable.type, box.rows, box.cols, variable.cols, 1};
      if (variable.role != Role::constant && foresight_.contents && epsilon_of(variable.type) == 0.0) {
        fields[f].data = const_cast<std::byte*>(foresight_.contents(group.fields[f].variable, box, round_));
        fields[f].row_stride = box.cols;
      }
      if (variable.role == Role::constant && !box.empty())
        fields[f].data = const_cast<std::byte*>(variable.contents.get()) +
                         (uint64_t{box.row} * variable.cols + box.col) * size_of(variable.type);
    }
    for (size_t p = 0; p < group.params.size(); ++p) params[p] = group.params[p].at(vertex);
    return group.codelet->cost({{fields.data(), group.fields.size()}, {params.data(), group.params.size()}},
                               machine_);
  }

  // Exchange.

  template <class Visit>
  void each_home(VariableId id, const Box& box, const Visit& visit) {
    mappings_[id].index.each_overlap(box, mappings_[id].cursor, [&](uint32_t i, const Box& common) {
      visit(program_.variable(id).mapping[i], common);
    });
  }

  /// A field that does not lie on its vertex's tile is read from where it lies. (Vertices of
  /// products write on their own tile.)
  void bring(const Field& field, const program::FieldSpec& spec, uint32_t vertex, TileId tile) {
    const Box box = field_box(program_, field, vertex);
    if (box.empty()) return;
    bool resident = false;
    each_home(field.variable, {box.row, 1, box.col, 1}, [&](const program::MappedBox& home, const Box&) {
      resident |= home.tile == tile && contains(home.box, box);
    });
    if (resident) return;
    assert(spec.access == Access::in);
    const uint64_t element = size_of(program_.variable(field.variable).type);
    const uint64_t bytes = box.elements() * element;
    tiles_[tile].pieces.push_back(
        {bytes, aligned(bytes + spec.over_read, kAlignment), position_, position_, is_interleaved(spec)});
    each_home(field.variable, box, [&](const program::MappedBox& home, const Box& common) {
      traffic_.add(home.tile, tile, field.variable, common, element);
    });
  }

  void count(const program::CopySet& set, double times) {
    for (const program::CopyGroup& group : set.groups) {
      touch(group.from);
      touch(group.to);
      for (const auto& row : {group.source_offset, group.target_offset})
        if (row) touch(row->index);
    }
    const auto [known, is_new] = exchanges_of_copies_.try_emplace(&set);
    if (is_new) known->second = add_copies(set);
    cycles_ += known->second.scaled(times);
    ++position_;
  }

  PhaseTimes add_copies(const program::CopySet& set) {
    for (const program::CopyGroup& group : set.groups)
      for (uint32_t i = 0; i < group.count; ++i) add_copy(group, group.source.at(i), group.target.at(i));
    return exchange();
  }

  void add_copy(const program::CopyGroup& group, const Box& source, const Box& target) {
    if (!group.source_rows) return add_boxes(group, source, target);
    const std::vector<uint32_t>& rows = *group.source_rows;
    for (uint32_t begin = 0; begin < source.rows;) {
      uint32_t end = begin + 1;
      while (end < source.rows && rows[source.row + end] == rows[source.row + end - 1] + 1) ++end;
      add_boxes(group, {rows[source.row + begin], end - begin, source.col, source.cols},
                {target.row + begin, end - begin, target.col, target.cols});
      begin = end;
    }
  }

  void add_boxes(const program::CopyGroup& group, const Box& source, const Box& target) {
    const uint64_t element = size_of(program_.variable(group.from).type);
    each_home(group.to, target, [&](const program::MappedBox& to, const Box& there) {
      const Box wanted{source.row + (there.row - target.row), there.rows,
                       source.col + (there.col - target.col), there.cols};
      each_home(group.from, wanted, [&](const program::MappedBox& from, const Box& common) {
        traffic_.add(from.tile, to.tile, group.from, common, element, group.source_rows != nullptr);
      });
    });
  }

  PhaseTimes exchange() {
    traffic_.count();
    for (TileId tile = 0; tile < tiles_.size(); ++tile) tiles_[tile].code += traffic_.code_bytes(tile);
    return traffic_.cycles();
  }

  // Memory.

  bool is_interleaved(const program::FieldSpec& spec) const {
    return spec.interleaved && machine_.has_interleaved_region();
  }

  /// Interleaved pieces grow down from the end of the memory and the others up from its code; where
  /// the machine has no such region, all grow up. The gap between them is of whole lines.
  uint64_t bytes_of(Tile& tile) const {
    const uint64_t fixed = aligned(tile.code, program::kDataAlignment) + tile.always_live;
    const auto others =
        std::partition(tile.pieces.begin(), tile.pieces.end(), [](const Piece& p) { return p.interleaved; });
    const bool two_regions = tile.has_two_regions || others != tile.pieces.begin();
    return fixed + placed_end({tile.pieces.begin(), others}) + placed_end({others, tile.pieces.end()}) +
           (two_regions ? 2 * program::kDataAlignment : 0);
  }

  void place_variables() {
    for (VariableId id = 0; id < uses_.size(); ++id) {
      const Variable& variable = program_.variable(id);
      const bool always = variable.role != Role::temporary;
      for (const program::MappedBox& mapped : variable.mapping) {
        if (mapped.box.empty()) continue;
        const Use& use = uses_[id];
        const uint64_t bytes = mapped.box.elements() * size_of(variable.type);
        const uint64_t room = aligned(bytes + use.over_read, kAlignment);
        if (always) {
          tiles_[mapped.tile].always_live += room;
          tiles_[mapped.tile].has_two_regions |= use.interleaved;
        } else if (use.first <= use.last)
          tiles_[mapped.tile].pieces.push_back({bytes, room, use.first, use.last, use.interleaved});
      }
    }
  }

  const Program& program_;
  const Machine& machine_;
  const Foresight& foresight_;
  program::Traffic traffic_;
  std::vector<Tile> tiles_;
  std::vector<Mapping> mappings_;
  std::vector<Use> uses_;
  std::unordered_map<const program::ComputeSet*, PhaseTimes> exchanges_of_sets_;
  std::unordered_map<const program::CopySet*, PhaseTimes> exchanges_of_copies_;
  uint32_t position_ = 0;
  uint32_t round_ = 0;  ///< times that the body of a `While` has run, this one included
  PhaseTimes cycles_;
};

}  // namespace

Tally tally(const program::Program& program, const machine::Machine& machine, const Foresight& foresight) {
  return Counter(program, machine, foresight).count();
}

}  // namespace tessera::ops
