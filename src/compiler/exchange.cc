#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "compiler/passes.h"
#include "program/box_index.h"
#include "program/reachability.h"
#include "program/traffic.h"

namespace tessera::compiler {
namespace {

using program::Access;
using program::Box;
using program::CopyGroup;
using program::Field;
using program::TileId;
using program::Variable;
using program::VariableId;
using program::VertexGroup;

constexpr uint32_t kWordBytes = 4;

/// Finds the mapped pieces of a variable that contain a box.
class PieceIndex {
 public:
  explicit PieceIndex(const Compilation& c) : c_(c) {
    std::vector<Box> boxes;
    for (const std::vector<PieceId>& ids : c.mapped) {
      boxes.clear();
      for (PieceId id : ids) boxes.push_back(c.pieces[id].box);
      by_variable_.push_back({program::BoxIndex(boxes), {}});
    }
  }

  /// A piece of `variable` accessible to `tile` that contains all of `box`, in which the box begins at a
  /// multiple of `alignment` bytes.
  std::optional<PieceId> resident(VariableId variable, const Box& box, TileId tile, uint32_t alignment) {
    std::optional<PieceId> found;
    each_overlap(variable, {box.row, 1, box.col, 1}, [&](PieceId id, const Box&) {
      const Piece& piece = c_.pieces[id];
      if ((piece.tile == program::kShared ||
           (piece.tile == tile && begins_at(piece, box) % alignment == 0)) &&
          contains(piece.box, box))
        found = id;
    });
    return found;
  }

  /// Calls visit(piece, common part) for every mapped piece that overlaps `box`.
  template <class Visit>
  void each_overlap(VariableId variable, const Box& box, const Visit& visit) {
    const std::vector<PieceId>& ids = c_.mapped[variable];
    OfVariable& v = by_variable_[variable];
    v.index.each_overlap(box, v.cursor,
                         [&](uint32_t position, const Box& common) { visit(ids[position], common); });
  }

 private:
  struct OfVariable {
    program::BoxIndex index;
    program::BoxIndex::Cursor cursor;
  };

  uint64_t begins_at(const Piece& piece, const Box& box) const {
    const uint64_t elements = uint64_t{box.row - piece.box.row} * piece.box.cols + (box.col - piece.box.col);
    return elements * size_of(c_.program.variable(piece.variable).type);
  }

  const Compilation& c_;
  std::vector<OfVariable> by_variable_;
};

void make_mapped_pieces(Compilation& c) {
  for (VariableId v = 0; v < c.program.variables().size(); ++v) {
    const Variable& variable = c.program.variable(v);
    std::vector<PieceId>& ids = c.mapped.emplace_back();
    for (const program::MappedBox& mapped : variable.mapping) {
      ids.push_back(static_cast<PieceId>(c.pieces.size()));
      Piece piece{v, mapped.box, mapped.tile};
      piece.always_live = variable.role != program::Role::temporary;
      c.pieces.push_back(piece);
    }
  }
}

/// Exchange of one compute set: one staging buffer for each box that a tile needs and lacks.
class SetExchange {
 public:
  SetExchange(Compilation& c, PieceIndex& index, SetPieces& out, CompiledSet& compiled)
      : c_(c), index_(index), out_(out), compiled_(compiled) {}

  void plan(const program::ComputeSet& set) {
    size_t vertices = 0;
    size_t fields = 0;
    for (const VertexGroup& group : set.groups) {
      vertices += group.count();
      fields += group.count() * group.fields.size();
    }
    compiled_.vertices.reserve(vertices);
    tile_of_.reserve(vertices);
    out_.fields.reserve(fields);
    for (uint32_t g = 0; g < set.groups.size(); ++g)
      for (uint32_t i = 0; i < set.groups[g].count(); ++i) add_vertex(set.groups[g], g, i);
    sort_by_tile();
    for (uint32_t i = 0; i < vertices; ++i)
      if (i == 0 || tile_of_[i] != tile_of_[i - 1]) {
        compiled_.tiles.push_back(tile_of_[i]);
        compiled_.tile_begin.push_back(i);
      }
    compiled_.tile_begin.push_back(static_cast<uint32_t>(vertices));
  }

 private:
  struct Key {
    VariableId variable;
    TileId tile;
    Box box;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      size_t hash = key.variable;
      for (uint32_t part : {key.tile, key.box.row, key.box.rows, key.box.col, key.box.cols})
        hash = (hash ^ part) * 0x9E3779B97F4A7C15 + (hash >> 32);
      return hash;
    }
  };

  void add_vertex(const VertexGroup& group, uint32_t g, uint32_t i) {
    const TileId tile = group.tile_of(i);
    compiled_.vertices.push_back({g, i, static_cast<uint32_t>(out_.fields.size())});
    tile_of_.push_back(tile);
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const Field& field = group.fields[f];
      const Box box = field_box(c_.program, field, i);
      const program::FieldSpec& spec = group.codelet->fields[f];
      const PieceId piece = box.empty() ? 0 : piece_for(field.variable, box, tile, spec);
      if (!box.empty()) demand(spec, c_.pieces[piece]);
      out_.fields.push_back({piece, box});
    }
  }

  void demand(const program::FieldSpec& spec, Piece& piece) const {
    piece.alignment = std::max<uint32_t>(piece.alignment, spec.alignment);
    if (piece.tile == program::kShared) return;
    piece.over_read = std::max(piece.over_read, spec.over_read);
    piece.interleaved = piece.interleaved || (spec.interleaved && c_.machine.has_interleaved_region());
  }

  /// The program decides where boxes of vertices begin within pieces, in units of words; stricter alignments
  /// of a codelet are met by copying.
  PieceId piece_for(VariableId variable, const Box& box, TileId tile, const program::FieldSpec& spec) {
    const Access access = spec.access;
    const uint32_t alignment = spec.alignment > kWordBytes ? spec.alignment : 1;
    if (const auto resident = index_.resident(variable, box, tile, alignment)) return *resident;
    auto [it, is_new] = stagings_.try_emplace(Key{variable, tile, box});
    Staging& staging = it->second;
    if (is_new) {
      staging.piece = static_cast<PieceId>(c_.pieces.size());
      Piece piece{variable, box, tile};
      piece.staging = true;
      c_.pieces.push_back(piece);
    }
    if (access != Access::out && !std::exchange(staging.filled, true))
      index_.each_overlap(variable, box, [&](PieceId from, const Box& common) {
        out_.before.moves.push_back({from, staging.piece, common, common});
      });
    if (access != Access::in && !std::exchange(staging.emptied, true))
      index_.each_overlap(variable, box, [&](PieceId to, const Box& common) {
        out_.after.moves.push_back({staging.piece, to, common, common});
      });
    return staging.piece;
  }

  void sort_by_tile() {
    if (std::is_sorted(tile_of_.begin(), tile_of_.end())) return;
    std::vector<uint32_t> order(tile_of_.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return tile_of_[a] < tile_of_[b]; });
    std::vector<CompiledVertex> vertices;
    std::vector<TileId> tiles;
    for (uint32_t i : order) {
      vertices.push_back(compiled_.vertices[i]);
      tiles.push_back(tile_of_[i]);
    }
    compiled_.vertices = std::move(vertices);
    tile_of_ = std::move(tiles);
  }

  struct Staging {
    PieceId piece = 0;
    bool filled = false;
    bool emptied = false;
  };

  Compilation& c_;
  PieceIndex& index_;
  std::unordered_map<Key, Staging, KeyHash> stagings_;
  SetPieces& out_;
  CompiledSet& compiled_;
  std::vector<TileId> tile_of_;  ///< of each vertex
};

/// Moves of one copy set between mapped pieces.
class CopyExchange {
 public:
  CopyExchange(const program::Program& program, PieceIndex& index, Moves& out)
      : program_(program), index_(index), out_(out) {}

  void plan(const program::CopySet& set) {
    for (const CopyGroup& group : set.groups)
      for (uint32_t i = 0; i < group.count; ++i) add_copy(group, group.source.at(i), group.target.at(i));
  }

 private:
  void add_copy(const CopyGroup& group, Box source, Box target) {
    if (!group.source_rows) return add_boxes(group, source, target);
    program::each_run_of_rows(
        *group.source_rows, source.row, source.row_end(), [&](uint64_t first, uint64_t count) {
          const auto rows = static_cast<uint32_t>(count);
          add_boxes(group, {(*group.source_rows)[first], rows, source.col, source.cols},
                    {target.row + static_cast<uint32_t>(first - source.row), rows, target.col, target.cols});
        });
  }

  void add_boxes(const CopyGroup& group, const Box& source, const Box& target) {
    index_.each_overlap(group.from, source, [&](PieceId from, const Box& part) {
      const Box shifted{target.row + (part.row - source.row), part.rows, target.col + (part.col - source.col),
                        part.cols};
      index_.each_overlap(group.to, shifted, [&](PieceId to, const Box& common) {
        const Box origin{source.row + (common.row - target.row), common.rows,
                         source.col + (common.col - target.col), common.cols};
        out_.moves.push_back(
            {from, to, origin, common, runtime_rows(group, origin, common), group.source_rows != nullptr});
      });
    });
  }

  uint32_t runtime_rows(const CopyGroup& group, const Box& source, const Box& target) {
    if (!group.source_offset && !group.target_offset) return kNoRuntimeRow;
    const auto end = [&](const auto& row, VariableId v, const Box& box) {
      const uint64_t room = program_.variable(v).rows - box.row_end();
      return RuntimeRows::End{row, v, static_cast<uint32_t>(room)};
    };
    out_.runtime_rows.push_back(
        {end(group.source_offset, group.from, source), end(group.target_offset, group.to, target)});
    return static_cast<uint32_t>(out_.runtime_rows.size() - 1);
  }

  const program::Program& program_;
  PieceIndex& index_;
  Moves& out_;
};

/// Cost and code of exchanges on a machine whose tiles have their own memories.
class ExchangeCount {
 public:
  explicit ExchangeCount(Compilation& c) : c_(c), traffic_(c.machine) {}

  ExchangeCost count(const Moves& moves) {
    ExchangeCost cost;
    if (moves.moves.empty() || !is_tiled(c_)) return cost;
    for (const Move& move : moves.moves) {
      const Piece& from = c_.pieces[move.from];
      traffic_.add(from.tile, c_.pieces[move.to].tile, from.variable, move.from_box,
                   size_of(c_.program.variable(from.variable).type), move.gathered);
    }
    traffic_.count();
    cost.cycles = traffic_.cycles();
    cost.bytes = traffic_.sent_bytes();
    cost.tiles.least = program::traffic_cycles(c_.machine, traffic_.of(0));
    for (TileId tile = 0; tile < c_.machine.tiles; ++tile) {
      c_.memory[tile][MemoryUse::exchange_code] += traffic_.code_bytes(tile);
      const double cycles = program::traffic_cycles(c_.machine, traffic_.of(tile));
      cost.tiles.least = std::min(cost.tiles.least, cycles);
      cost.tiles.mean += cycles / c_.machine.tiles;
      cost.tiles.most = std::max(cost.tiles.most, cycles);
    }
    return cost;
  }

 private:
  Compilation& c_;
  program::Traffic traffic_;
};

/// Records which pieces each toucher touches, and how.
class TouchNotes {
 public:
  explicit TouchNotes(Compilation& c) : c_(c), touchers_(c.program) {}

  void note(program::ComputeSetId id, const SetPieces& pieces, const CompiledSet& compiled) {
    for (const CompiledVertex& vertex : compiled.vertices) note(id, pieces, vertex);
    for (const Move& move : pieces.before.moves) log_.read(move.from);
    for (const Move& move : pieces.after.moves) log_.write(move.to, move.to_box.elements());
    close(touchers_.of_set(id));
  }

  void note(program::CopySetId id, const Moves& moves) {
    for (const Move& move : moves.moves) {
      log_.read(move.from);
      const bool anywhere = move.runtime != kNoRuntimeRow && moves.runtime_rows[move.runtime].to.row;
      log_.write(move.to, anywhere ? 0 : move.to_box.elements());
    }
    for (const CopyGroup& group : c_.program.copy_sets()[id].groups)
      for (const auto& row : {group.source_offset, group.target_offset})
        if (row) log_.read(control(row->index));
    close(touchers_.of_copy(id));
  }

  void note_control() {
    const std::vector<program::Step>& steps = c_.program.steps();
    for (program::StepId id = 0; id < steps.size(); ++id) {
      if (const auto* repeat = std::get_if<program::Repeat>(&steps[id]); repeat && repeat->counter)
        log_.write(control(*repeat->counter), 1);
      else if (const auto* loop = std::get_if<program::While>(&steps[id]))
        log_.read(control(loop->condition));
      else if (const auto* branch = std::get_if<program::If>(&steps[id]))
        log_.read(control(branch->condition));
      close(touchers_.of_control(id));
    }
  }

 private:
  void note(program::ComputeSetId id, const SetPieces& pieces, const CompiledVertex& vertex) {
    const VertexGroup& group = c_.program.compute_sets()[id].groups[vertex.group];
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const FieldPiece& field = pieces.fields[vertex.first_place + f];
      if (field.box.empty()) continue;
      const program::FieldSpec& spec = group.codelet->fields[f];
      if (c_.pieces[field.piece].staging) {
        log_.use(field.piece);
        continue;
      }
      if (spec.access != Access::out && !spec.scratch) log_.read(field.piece);
      // For a scattered field it is unknown which part is written.
      if (spec.access != Access::in) log_.write(field.piece, spec.scattered ? 0 : field.box.elements());
    }
  }

  PieceId control(VariableId id) const { return c_.mapped[id].at(0); }

  void close(ToucherId toucher) {
    log_.close([&](PieceId id) { return c_.pieces[id].box.elements(); },
               [&](PieceId id, Touch touch) {
                 TouchChain& chain = c_.pieces[id].touches;
                 chain = c_.chains.extended(chain, toucher, touch);
               });
  }

  Compilation& c_;
  Touchers touchers_;
  TouchLog log_;
};

}  // namespace

std::string plan_exchange(Compilation& c) {
  make_mapped_pieces(c);
  c.memory.assign(size_t{c.machine.tiles} + 1, {});
  PieceIndex index(c);
  ExchangeCount count(c);
  TouchNotes notes(c);
  const program::Reachability reachable = program::reachability_of(c.program);
  Executable& e = *c.executable;
  e.sets.resize(c.program.compute_sets().size());
  e.copies.resize(c.program.copy_sets().size());
  c.sets.resize(e.sets.size());
  c.copies.resize(e.copies.size());
  size_t moves = 0;
  uint64_t bytes = 0;
  SetPieces scratch;
  for (program::ComputeSetId s = 0; s < e.sets.size(); ++s) {
    if (!reachable.sets[s]) continue;
    SetPieces& set = c.sizes_alone ? scratch : c.sets[s];
    SetExchange(c, index, set, e.sets[s]).plan(c.program.compute_sets()[s]);
    e.sets[s].before.cost = count.count(set.before);
    e.sets[s].after.cost = count.count(set.after);
    notes.note(s, set, e.sets[s]);
    moves += set.before.moves.size() + set.after.moves.size();
    bytes += e.sets[s].before.cost.bytes + e.sets[s].after.cost.bytes;
    scratch.clear();
  }
  for (program::CopySetId s = 0; s < e.copies.size(); ++s) {
    if (!reachable.copies[s]) continue;
    Moves& copy = c.sizes_alone ? scratch.before : c.copies[s];
    CopyExchange(c.program, index, copy).plan(c.program.copy_sets()[s]);
    e.copies[s].cost = count.count(copy);
    notes.note(s, copy);
    moves += copy.moves.size();
    bytes += e.copies[s].cost.bytes;
    scratch.clear();
  }
  notes.note_control();
  return fmt::format("{} moves, which send {} bytes", moves, bytes);
}

}  // namespace tessera::compiler
