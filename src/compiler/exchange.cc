#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/integer_types.h"
#include "compiler/exchange_count.h"
#include "compiler/passes.h"
#include "compiler/touch_notes.h"
#include "program/mapping_index.h"
#include "program/reachability.h"

namespace tessera::compiler {
namespace {

using program::Box;
using program::CopyGroup;
using program::Field;
using program::TileId;
using program::Variable;
using program::VariableId;
using program::VertexGroup;

/// Finds the mapped pieces of a variable that contain a box.
class PieceIndex {
 public:
  explicit PieceIndex(const Compilation& c) : c_(c), mappings_(c.program) {}

  /// A piece of the field's variable accessible to `tile` that contains all of `box`, aligned.
  std::optional<PieceId> resident(const Field& field, const Box& box, TileId tile, uint32_t alignment) {
    const auto found = mappings_.resident(field.variable, box, tile, alignment, field.row);
    return found ? std::optional(c_.mapped[field.variable][*found]) : std::nullopt;
  }

  /// Calls visit(piece, common part) for every mapped piece that overlaps `box`.
  template <class Visit>
  void each_overlap(VariableId variable, const Box& box, const Visit& visit) {
    const std::vector<PieceId>& ids = c_.mapped[variable];
    mappings_.each_overlap(variable, box,
                           [&](uint32_t position, const Box& common) { visit(ids[position], common); });
  }

 private:
  const Compilation& c_;
  program::MappingIndex mappings_;
};

/// One end of a move that a run-time row shifts.
RuntimeRows::End end_of(const program::Program& program, const std::optional<program::RuntimeRow>& row,
                        VariableId v, const Box& box) {
  return {row, v, static_cast<uint32_t>(program.variable(v).rows - box.row_end())};
}

void make_mapped_pieces(Compilation& c) {
  uint32_t argument_boxes = 0;
  for (VariableId v = 0; v < c.program.variables().size(); ++v) {
    const Variable& variable = c.program.variable(v);
    c.first_argument_box.push_back(argument_boxes);
    if (variable.is_argument()) argument_boxes += static_cast<uint32_t>(variable.mapping.size());
    std::vector<PieceId>& ids = c.mapped.emplace_back();
    for (const program::MappedBox& mapped : variable.mapping) {
      ids.push_back(static_cast<PieceId>(c.pieces.size()));
      Piece piece{v, mapped.box, mapped.tile};
      piece.always_live = variable.role != program::Role::temporary;
      c.pieces.push_back(piece);
    }
  }
}

/// Demands of a function's codelets on an argument apply to all operands that calls pass for it.
void demand_of_operands(Compilation& c, const program::Reachability& reachable) {
  bool is_new = true;
  const auto raise = [&](auto& has, auto wants) {
    is_new = is_new || has < wants;
    has = std::max(has, wants);
  };
  while (std::exchange(is_new, false))
    for (program::StepId id = 0; id < c.program.steps().size(); ++id) {
      const auto* call = std::get_if<program::Call>(&c.program.steps()[id]);
      if (call == nullptr || !reachable.steps[id]) continue;
      const std::vector<program::Argument>& arguments = c.program.functions()[call->function].arguments;
      for (size_t a = 0; a < arguments.size(); ++a) {
        const std::vector<PieceId>& wanted = c.mapped[arguments[a].variable];
        const std::vector<PieceId>& passed = c.mapped[call->operands[a].variable];
        if (c.program.variable(arguments[a].variable).is_shared()) continue;
        for (size_t i = 0; i < wanted.size(); ++i) {
          const Piece& wants = c.pieces[wanted[i]];
          Piece& has = c.pieces[passed[i]];
          raise(has.alignment, wants.alignment);
          raise(has.over_read, wants.over_read);
          raise(has.interleaved, wants.interleaved);
        }
      }
    }
}

/// Exchange of one compute set: one staging piece for each box that a tile wants and lacks. Calls taken() now
/// and then, which may take the moves so far.
template <class Taken>
class SetExchange {
 public:
  SetExchange(Compilation& c, PieceIndex& index, SetPieces& out, CompiledSet& compiled, const Taken& taken)
      : c_(c), index_(index), out_(out), compiled_(compiled), taken_(taken) {}

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
    if (set.ordered && !set.groups.empty())
      add_in_order(set);
    else
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
    std::optional<program::RuntimeRow> row;
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

  /// Vertex i of one group leaves in the caches what vertex i of the next group takes.
  void add_in_order(const program::ComputeSet& set) {
    for (uint32_t i = 0; i < set.groups.front().count(); ++i)
      for (uint32_t g = 0; g < set.groups.size(); ++g) add_vertex(set.groups[g], g, i);
  }

  void add_vertex(const VertexGroup& group, uint32_t g, uint32_t i) {
    const TileId tile = group.tile_of(i);
    compiled_.vertices.push_back({g, i, static_cast<uint32_t>(out_.fields.size())});
    tile_of_.push_back(tile);
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const Field& field = group.fields[f];
      const Box box = field_box(c_.program, field, i);
      const program::FieldSpec& spec = group.codelet->fields[f];
      const PieceId piece = box.empty() ? 0 : piece_for(field, box, tile, spec);
      if (!box.empty()) demand(spec, c_.pieces[piece]);
      out_.fields.push_back({piece, box, !box.empty() && field.row && !c_.pieces[piece].staging});
    }
    taken_();
  }

  void demand(const program::FieldSpec& spec, Piece& piece) const {
    piece.alignment = std::max<uint32_t>(piece.alignment, spec.alignment);
    if (piece.tile == program::kShared) return;
    piece.over_read = std::max(piece.over_read, spec.over_read);
    piece.interleaved = piece.interleaved || (spec.interleaved && c_.machine.has_interleaved_region());
  }

  PieceId piece_for(const Field& field, const Box& box, TileId tile, const program::FieldSpec& spec) {
    const VariableId variable = field.variable;
    if (const auto resident = index_.resident(field, box, tile, spec.alignment)) return *resident;
    auto [it, is_new] = stagings_.try_emplace(Key{variable, tile, box, field.row});
    Staging& staging = it->second;
    if (is_new) {
      staging.piece = static_cast<PieceId>(c_.pieces.size());
      Piece piece{variable, box, tile};
      piece.staging = true;
      c_.pieces.push_back(piece);
    }
    if (program::reads(spec.access) && !std::exchange(staging.filled, true))
      index_.each_overlap(variable, box, [&](PieceId from, const Box& common) {
        const uint32_t row = runtime_row(out_.before, field, common, &RuntimeRows::from);
        out_.before.moves.push_back({from, staging.piece, common, common, row});
      });
    if (program::writes(spec.access) && !std::exchange(staging.emptied, true))
      index_.each_overlap(variable, box, [&](PieceId to, const Box& common) {
        const uint32_t row = runtime_row(out_.after, field, common, &RuntimeRows::to);
        out_.after.moves.push_back({staging.piece, to, common, common, row});
      });
    return staging.piece;
  }

  /// The run-time row of the variable's end of a move; a staging buffer stays where it is.
  uint32_t runtime_row(Moves& moves, const Field& field, const Box& box, RuntimeRows::End RuntimeRows::*end) {
    if (!field.row) return kNoRuntimeRow;
    RuntimeRows rows{{{}, field.variable, 0}, {{}, field.variable, 0}};
    rows.*end = end_of(c_.program, field.row, field.variable, box);
    moves.runtime_rows.push_back(rows);
    return static_cast<uint32_t>(moves.runtime_rows.size() - 1);
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
  const Taken& taken_;
  std::vector<TileId> tile_of_;  ///< of each vertex
};

/// Moves of one copy set between mapped pieces. Calls taken() now and then, which may take those so far.
template <class Taken>
class CopyExchange {
 public:
  CopyExchange(const program::Program& program, PieceIndex& index, Moves& out, const Taken& taken)
      : program_(program), index_(index), out_(out), taken_(taken) {}

  void plan(const program::CopySet& set) {
    for (const CopyGroup& group : set.groups)
      for (uint32_t i = 0; i < group.count; ++i) {
        program::each_copied_box(group, i,
                                 [&](const Box& from, const Box& to) { add_boxes(group, from, to); });
        taken_();
      }
  }

 private:
  void add_boxes(const CopyGroup& group, const Box& source, const Box& target) {
    index_.each_overlap(group.from, source, [&](PieceId from, const Box& part) {
      const Box shifted = program::corresponding(part, source, target);
      index_.each_overlap(group.to, shifted, [&](PieceId to, const Box& common) {
        const Box origin = program::corresponding(common, target, source);
        out_.moves.push_back(
            {from, to, origin, common, runtime_rows(group, origin, common), group.source_rows != nullptr});
      });
    });
  }

  uint32_t runtime_rows(const CopyGroup& group, const Box& source, const Box& target) {
    if (!group.source_offset && !group.target_offset) return kNoRuntimeRow;
    out_.runtime_rows.push_back({end_of(program_, group.source_offset, group.from, source),
                                 end_of(program_, group.target_offset, group.to, target)});
    return static_cast<uint32_t>(out_.runtime_rows.size() - 1);
  }

  const program::Program& program_;
  PieceIndex& index_;
  Moves& out_;
  const Taken& taken_;
};

/// Plans, prices and notes the exchanges of all sets that a run can reach.
class ExchangePass {
 public:
  explicit ExchangePass(Compilation& c)
      : c_(c), e_(*c.executable), index_(c), count_(c), count_after_(c), notes_(c) {
    e_.sets.resize(c.program.compute_sets().size());
    e_.copies.resize(c.program.copy_sets().size());
    c.sets.resize(e_.sets.size());
    c.copies.resize(e_.copies.size());
  }

  std::string run() {
    const program::Reachability reachable = program::reachability_of(c_.program);
    for (program::ComputeSetId s = 0; s < e_.sets.size(); ++s)
      if (reachable.sets[s]) plan_set(s, keeps_all() ? c_.sets[s] : scratch_);
    for (program::CopySetId s = 0; s < e_.copies.size(); ++s)
      if (reachable.copies[s]) plan_copy(s, keeps_all() ? c_.copies[s] : scratch_.before);
    for (program::CollectiveId id = 0; id < c_.program.collectives().size(); ++id)
      if (reachable.collectives[id]) notes_.note_collective(id);
    notes_.note_control();
    demand_of_operands(c_, reachable);
    return fmt::format("{} moves, which send {} bytes", moves_, bytes_);
  }

 private:
  void plan_set(program::ComputeSetId s, SetPieces& set) {
    const auto take = [&] {
      if (has_many(set.before)) {
        notes_.note_filling(set.before);
        take_moves(set.before, count_, c_.sets[s].before);
      }
      if (has_many(set.after)) {
        notes_.note_emptying(set.after);
        take_moves(set.after, count_after_, c_.sets[s].after);
      }
    };
    SetExchange(c_, index_, set, e_.sets[s], take).plan(c_.program.compute_sets()[s]);
    notes_.note(s, set, e_.sets[s]);
    if (c_.kept == Kept::metadata) keep_fields(s, set);
    e_.sets[s].before.cost = cost_of(set.before, count_, c_.sets[s].before);
    e_.sets[s].after.cost = cost_of(set.after, count_after_, c_.sets[s].after);
    scratch_.fields.clear();
  }

  void plan_copy(program::CopySetId s, Moves& copy) {
    const auto take = [&] {
      if (!has_many(copy)) return;
      notes_.note(copy);
      take_moves(copy, count_, c_.copies[s]);
    };
    CopyExchange(c_.program, index_, copy, take).plan(c_.program.copy_sets()[s]);
    notes_.note(copy);
    notes_.note(s);
    e_.copies[s].cost = cost_of(copy, count_, c_.copies[s]);
  }

  bool keeps_all() const { return c_.kept == Kept::all; }

  /// Whether there are enough moves to take before all are known: of millions, mostly only the cost is
  /// wanted.
  bool has_many(const Moves& moves) const {
    constexpr size_t kMany = 4096;
    return !keeps_all() && moves.moves.size() >= kMany;
  }

  /// Counts moves, and clears them unless all are kept.
  void take_moves(Moves& moves, ExchangeCount& count, Moves& kept) {
    count.add(moves);
    moves_ += moves.moves.size();
    if (keeps_all()) return;
    if (c_.kept == Kept::metadata) keep_metadata(moves, kept);
    moves.clear();
  }
  ExchangeCost cost_of(Moves& moves, ExchangeCount& count, Moves& kept) {
    take_moves(moves, count, kept);
    const ExchangeCost cost = count.count();
    bytes_ += cost.bytes;
    return cost;
  }

  void keep_fields(program::ComputeSetId s, const SetPieces& set) {
    const auto runs_dry = [](const VertexGroup& group) { return group.codelet->integer_only; };
    if (e_.costed_at_run[s] || std::ranges::any_of(c_.program.compute_sets()[s].groups, runs_dry))
      c_.sets[s].fields = set.fields;
  }

  void keep_metadata(const Moves& moves, Moves& kept) {
    for (Move move : moves.moves) {
      if (!is_integer(c_.program.variable(c_.pieces[move.from].variable).type)) continue;
      if (move.runtime != kNoRuntimeRow) {
        kept.runtime_rows.push_back(moves.runtime_rows[move.runtime]);
        move.runtime = static_cast<uint32_t>(kept.runtime_rows.size() - 1);
      }
      kept.moves.push_back(move);
    }
  }

  Compilation& c_;
  Executable& e_;
  PieceIndex index_;
  ExchangeCount count_, count_after_;
  TouchNotes notes_;
  SetPieces scratch_;  ///< where nothing is kept
  size_t moves_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace

std::string plan_exchange(Compilation& c) {
  make_mapped_pieces(c);
  c.memory.assign(slots_of(c.machine), {});
  return ExchangePass(c).run();
}

}  // namespace tessera::compiler
