#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "compiler/overlaps.h"
#include "compiler/passes.h"
#include "compiler/soundness.h"
#include "compiler/transfer_list.h"
#include "program/collective.h"
#include "program/mapping_index.h"
#include "program/order.h"
#include "program/reachability.h"

namespace tessera::compiler {
namespace {

using program::Box;
using program::TileId;
using program::Variable;
using program::VariableId;

/// `place`, moved by `rows` and `cols` within a box that begins there.
BoxAddress moved(BoxAddress place, uint32_t rows, uint32_t cols, size_t element) {
  if (place.store == Store::external)
    place.offset += (uint64_t{rows} << 32) + cols;
  else
    place.offset += (uint64_t{rows} * place.stride + cols) * element;
  return place;
}

/// Checks an executable against its program. All knowledge of addresses comes from the executable alone:
/// where mapped boxes are, what exchanges move, what vertices access.
class Checker {
 public:
  explicit Checker(const Executable& e)
      : e_(e), program_(*e.program), machine_(e.machine), mappings_(program_) {}

  void check() {
    check_sizes();
    overlaps_.emplace(e_);
    find_argument_boxes();
    arena_bytes_.resize(slots_of(machine_));
    for (const auto& [space, bytes] : e_.arena_bytes) arena_bytes_[slot_of(machine_, space)] = bytes;
    const program::Reachability reach = program::reachability_of(program_);
    controls_ = reach.controls;
    for (size_t s = 0; s < e_.sets.size(); ++s)
      if (reach.sets[s]) check(static_cast<program::ComputeSetId>(s));
    for (size_t s = 0; s < e_.copies.size(); ++s) {
      if (!reach.copies[s]) continue;
      const program::CopySet& source = program_.copy_sets()[s];
      where_ = [&source] { return fmt::format("copy '{}'", source.name); };
      check_ends(e_.copies[s]);
      check_complete(source, e_.copies[s]);
      note_runtime_rows(source);
      overlaps_->close(touchers_.of_copy(static_cast<program::CopySetId>(s)));
    }
    for (program::CollectiveId id = 0; id < reach.collectives.size(); ++id)
      if (reach.collectives[id]) check_collective(id);
    for (VariableId v = 0; v < e_.mapped.size(); ++v)
      if (program_.variable(v).role != program::Role::temporary || reach.controls[v]) check_mapped(v);
    note_control();
    check_passed(reach);
    overlaps_->check();
  }

 private:
  /// Calls visit(place of the common part, common part, storage) for the mapped boxes that overlap `box`.
  template <class Visit>
  void each_home(VariableId v, const Box& box, const Visit& visit) {
    const Variable& variable = program_.variable(v);
    mappings_.each_overlap(v, box, [&](uint32_t i, const Box& common) {
      const program::MappedBox& mapped = variable.mapping[i];
      visit(moved(e_.mapped[v][i], common.row - mapped.box.row, common.col - mapped.box.col,
                  size_of(variable.type)),
            common, overlaps_->mapped(v, i));
    });
  }

  /// The lengths of all lists that are parallel to others.
  void check_sizes() const {
    const auto demand = [](size_t is, size_t wanted, std::string_view what) {
      if (is != wanted) fail(fmt::format("it lists {} {} of {}", is, what, wanted));
    };
    demand(e_.sets.size(), program_.compute_sets().size(), "compute sets");
    demand(e_.set_cycles.size(), e_.set_cycles.empty() ? 0 : e_.sets.size(), "costs of compute sets");
    demand(e_.copies.size(), program_.copy_sets().size(), "copies");
    demand(e_.mapped.size(), program_.variables().size(), "variables");
    demand(e_.addresses.size(), machine_.tiles, "tiles");
    for (VariableId v = 0; v < e_.mapped.size(); ++v)
      demand(e_.mapped[v].size(), program_.variable(v).mapping.size(), "mapped boxes");
    constexpr uint64_t kMostArenaBytes = uint64_t{1} << 42;  // sums of these do not overflow
    for (const auto& [space, bytes] : e_.arena_bytes)
      if (!is_space(space) || bytes > kMostArenaBytes)
        fail(fmt::format("it has {} bytes on {} of {}", bytes, name_of(space), machine_.tiles));
  }

  bool is_space(TileId space) const {
    if (space == program::kShared) return true;
    return space < program::kStreaming ? space < machine_.tiles
                                       : slot_of(machine_, space) < slots_of(machine_);
  }

  /// The places of callers' arrays, constants and control variables.
  void check_mapped(VariableId v) const {
    const Variable& variable = program_.variable(v);
    for (size_t i = 0; i < variable.mapping.size(); ++i) {
      const program::MappedBox& mapped = variable.mapping[i];
      const BoxAddress& place = e_.mapped[v][i];
      const auto what = [&] { return fmt::format("'{}'", variable.name); };
      if (mapped.box.empty()) continue;
      const TileId space = variable.streaming ? streaming_space(machine_, mapped.tile) : mapped.tile;
      if (place.tile() != space) fail(fmt::format("{} lies on {}", what(), name_of(place.tile())));
      if (variable.is_argument() && !variable.is_shared() &&
          (place.store != Store::argument || place.argument_box() >= argument_boxes_.size() ||
           argument_boxes_[place.argument_box()].position != i))
        fail(fmt::format("{} is not what calls pass", what()));
      check_inside(place, v, mapped.box.rows, mapped.box.cols, what);
    }
  }

  // Vertices.

  void check(program::ComputeSetId id) {
    const program::ComputeSet& source = program_.compute_sets()[id];
    const CompiledSet& set = e_.sets[id];
    where_ = [&source] { return fmt::format("compute set '{}'", source.name); };
    check_ends(set.before);
    check_ends(set.after);
    before_.reset(set.before.transfers);
    after_.reset(set.after.transfers);
    size_t vertices = 0;
    for (const program::VertexGroup& group : source.groups) vertices += group.count();
    if (set.vertices.size() != vertices)
      fail(fmt::format("{} has {} of {} vertices", where_(), set.vertices.size(), vertices));
    if (set.tile_begin.size() != set.tiles.size() + 1 || set.tile_begin.front() != 0 ||
        set.tile_begin.back() != vertices || !std::is_sorted(set.tile_begin.begin(), set.tile_begin.end()))
      fail(fmt::format("{} does not deal its vertices to its tiles", where_()));
    handed_on_ = source.ordered ? program::handed_on(source) : std::vector<VariableId>{};
    for (size_t t = 0; t < set.tiles.size(); ++t) {
      if (source.ordered) check_order(set, t);
      for (uint32_t i = set.tile_begin[t]; i < set.tile_begin[t + 1]; ++i)
        check(source, set, set.vertices[i], set.tiles[t]);
    }
    note_runtime_rows(source);
    overlaps_->close(touchers_.of_set(id));
  }

  /// Vertices of one index follow one another by group.
  void check_order(const CompiledSet& set, size_t t) const {
    const auto in_order = [](const CompiledVertex& a, const CompiledVertex& b) {
      return std::pair(a.index, a.group) < std::pair(b.index, b.group);
    };
    const auto begin = set.vertices.begin();
    if (!std::is_sorted(begin + set.tile_begin[t], begin + set.tile_begin[t + 1], in_order))
      fail(fmt::format("{} runs vertices of tile {} out of order", where_(), set.tiles[t]));
  }

  void check(const program::ComputeSet& source, const CompiledSet& set, const CompiledVertex& vertex,
             TileId tile) {
    if (vertex.group >= source.groups.size() || vertex.index >= source.groups[vertex.group].count() ||
        vertex.first_place + source.groups[vertex.group].fields.size() > set.places.size())
      fail(fmt::format("{} has a vertex that its program has not", where_()));
    const program::VertexGroup& group = source.groups[vertex.group];
    if (group.tile_of(vertex.index) != tile)
      fail(fmt::format("{}: a vertex of tile {} runs on tile {}", where_(), group.tile_of(vertex.index),
                       tile));
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const program::Field& field = group.fields[f];
      const Box box = field_box(program_, field, vertex.index);
      if (!box.empty())
        check_field(field, box, group.codelet->fields[f], set.places[vertex.first_place + f], tile,
                    written_before(program_, source, vertex.group, f, vertex.index));
    }
  }

  /// A field is at its variable's place, or at a place that exchanges fill or write back.
  void check_field(const program::Field& of, const Box& box, const program::FieldSpec& spec,
                   const BoxAddress& place, TileId tile, const program::WrittenBefore& before) {
    const VariableId v = of.variable;
    const Variable& variable = program_.variable(v);
    const auto field = [&] {
      return fmt::format("{}: field '{}' of '{}' on tile {}", where_(), spec.name, variable.name, tile);
    };
    if (place.tile() != tile && place.tile() != program::kShared)
      fail(fmt::format("{} lies on tile {}", field(), place.tile()));
    if (place.moves && !of.row) fail(fmt::format("{} moves without a run-time row", field()));
    const uint64_t room = place.moves ? variable.rows - box.row_end() : 0;
    check_inside(place, v, box.rows + room, box.cols, field);
    if (place.tile() != program::kShared) {
      place.store == Store::argument ? demand(spec, place, field) : check_address(spec, place, field);
      check_pitch(spec, of, place, field);
    }
    const bool is_handed_on = std::ranges::find(handed_on_, v) != handed_on_.end();
    const size_t element = size_of(variable.type);
    TouchLog& log = overlaps_->log();
    each_home(v, box, [&](const BoxAddress& home, const Box& common, Overlaps::StorageId storage) {
      const BoxAddress part = moved(place, common.row - box.row, common.col - box.col, element);
      const bool is_home = home.store == part.store && home.space == part.space &&
                           home.offset == part.offset && (home.stride == part.stride || common.rows == 1);
      if (reads(spec.access) && !(is_home && spec.scratch) && !before.all) log.read(storage);
      const bool anywhere = of.row || before.some || (is_home && spec.scattered);
      if (writes(spec.access)) log.write(storage, anywhere ? 0 : common.elements());
      if (is_home && place.moves == of.row.has_value()) return;
      if (is_home || place.moves) fail(fmt::format("{} does not move as its run-time row says", field()));
      if (is_handed_on) fail(fmt::format("{} is handed on, but lies elsewhere", field()));
      log.use(overlaps_->staged(v, box, place));
      if (reads(spec.access) && !before_.has(home, part, common))
        fail(fmt::format("{} misses the exchange that brings it", field()));
      if (writes(spec.access) && !after_.has(part, home, common))
        fail(fmt::format("{} misses the exchange that takes it back", field()));
    });
  }

  template <class What>
  void check_address(const program::FieldSpec& spec, const BoxAddress& place, const What& what) const {
    const uint64_t address = e_.addresses.at(place.space).of(place.offset);
    if (spec.alignment > 4 && address % spec.alignment != 0)
      fail(fmt::format("{} lies at byte {}, not at a multiple of {}", what(), address, spec.alignment));
    if (spec.interleaved && machine_.has_interleaved_region() && address < machine_.interleaved_from)
      fail(fmt::format("{} lies at byte {}, below the interleaved region", what(), address));
  }

  // Arguments on tiles.

  /// What codelets demand of the addresses of a box of an argument.
  struct ArgumentBox {
    VariableId variable = 0;
    uint32_t position = 0;  ///< in its mapping
    uint32_t alignment = 1;
    bool interleaved = false;
  };

  void find_argument_boxes() {
    for (VariableId v = 0; v < program_.variables().size(); ++v)
      for (uint32_t i = 0; program_.variable(v).is_argument() && i < program_.variable(v).mapping.size(); ++i)
        argument_boxes_.push_back({v, i});
  }

  template <class What>
  void demand(const program::FieldSpec& spec, const BoxAddress& place, const What& what) {
    ArgumentBox& box = argument_boxes_[place.argument_box()];
    if (spec.alignment > 4 && place.argument_offset() % spec.alignment != 0)
      fail(fmt::format("{} lies at byte {} of what is passed, not at a multiple of {}", what(),
                       place.argument_offset(), spec.alignment));
    if (spec.alignment > 4) box.alignment = std::max<uint32_t>(box.alignment, spec.alignment);
    box.interleaved = box.interleaved || (spec.interleaved && machine_.has_interleaved_region());
  }

  /// What calls pass is where the codelets of their functions demand it.
  void check_passed(const program::Reachability& reach) {
    for (bool is_new = true; std::exchange(is_new, false);)
      each_passed(reach, [&](const ArgumentBox& wants, const BoxAddress& place) {
        if (place.store != Store::argument) return;
        ArgumentBox& has = argument_boxes_[place.argument_box()];
        is_new = is_new || has.alignment < wants.alignment || has.interleaved < wants.interleaved;
        has.alignment = std::max(has.alignment, wants.alignment);
        has.interleaved = has.interleaved || wants.interleaved;
      });
    each_passed(reach, [&](const ArgumentBox& wants, const BoxAddress& place) {
      if (place.store == Store::argument) return;
      const uint64_t address = e_.addresses.at(place.space).of(place.offset);
      if (address % wants.alignment != 0 || (wants.interleaved && address < machine_.interleaved_from))
        fail(fmt::format("a call passes byte {} for '{}', which codelets demand at a multiple of {}{}",
                         address, program_.variable(wants.variable).name, wants.alignment,
                         wants.interleaved ? ", in the interleaved region" : ""));
    });
  }

  /// Calls visit(box of an argument, place that a call passes for it).
  template <class Visit>
  void each_passed(const program::Reachability& reach, const Visit& visit) {
    for (program::StepId id = 0; id < program_.steps().size(); ++id) {
      const auto* call = reach.steps[id] ? std::get_if<program::Call>(&program_.steps()[id]) : nullptr;
      for (size_t a = 0; call != nullptr && a < call->operands.size(); ++a) {
        const VariableId argument = program_.functions()[call->function].arguments[a].variable;
        const std::vector<program::MappedBox>& boxes = program_.variable(argument).mapping;
        if (program_.variable(argument).is_shared()) continue;
        for (size_t i = 0; i < boxes.size(); ++i)
          if (!boxes[i].box.empty())
            visit(argument_boxes_[e_.mapped[argument][i].argument_box()],
                  e_.mapped[call->operands[a].variable][i]);
      }
    }
  }

  /// A run-time row moves a field by multiples of its alignment.
  template <class What>
  void check_pitch(const program::FieldSpec& spec, const program::Field& of, const BoxAddress& place,
                   const What& what) const {
    if (!place.moves || spec.alignment <= 4) return;
    const uint64_t pitch =
        uint64_t{of.row->stride} * place.stride * size_of(program_.variable(of.variable).type);
    if (pitch % spec.alignment != 0)
      fail(fmt::format("{} moves by {} bytes, not by multiples of {}", what(), pitch, spec.alignment));
  }

  // Exchanges.

  void check_ends(const Exchange& exchange) const {
    for (const RuntimeRows& rows : exchange.runtime_rows)
      for (const RuntimeRows::End& end : {rows.from, rows.to})
        if (end.variable >= controls_.size() ||
            (end.row && (end.row->index >= controls_.size() || !controls_[end.row->index])))
          fail(fmt::format("{} has a run-time row that its program has not", where_()));
    for (const Transfer& t : exchange.transfers) {
      const auto what = [&] {
        return fmt::format("{}: a transfer of {} × {} elements", where_(), t.rows, t.cols);
      };
      if (t.runtime != kNoRuntimeRow && t.runtime >= exchange.runtime_rows.size())
        fail(fmt::format("{} has no run-time row {}", what(), t.runtime));
      const RuntimeRows rows = t.runtime != kNoRuntimeRow ? exchange.runtime_rows[t.runtime] : RuntimeRows{};
      check_end(t.from, t, rows.from.row ? rows.from.room : 0, what);
      check_end(t.to, t, rows.to.row ? rows.to.room : 0, what);
    }
  }

  /// One end of a transfer, at any position to which its run-time row may move it.
  template <class What>
  void check_end(const BoxAddress& end, const Transfer& t, uint32_t room, const What& what) const {
    if (end.store == Store::arena)
      return check_in_arena(end, uint64_t{t.rows} + room, t.cols, size_of(t.type), what);
    if (end.store == Store::argument) {
      if (end.argument_box() >= argument_boxes_.size())
        fail(fmt::format("{} has no box {} of an argument", what(), end.argument_box()));
      return check_inside(end, argument_boxes_[end.argument_box()].variable, uint64_t{t.rows} + room, t.cols,
                          what);
    }
    if (end.space >= program_.variables().size() ||
        size_of(program_.variable(end.space).type) != size_of(t.type))
      fail(fmt::format("{} has no variable {}", what(), end.space));
    check_inside(end, end.space, uint64_t{t.rows} + room, t.cols, what);
  }

  /// Every element of a copy set is moved from its place to its destination, and no other.
  void check_complete(const program::CopySet& source, const Exchange& exchange) {
    uint64_t wanted = 0;
    uint64_t moved = 0;
    before_.reset(exchange.transfers);
    for (const program::CopyGroup& group : source.groups)
      for (uint32_t i = 0; i < group.count; ++i) {
        wanted += group.target.at(i).elements();
        program::each_copied_box(group, i,
                                 [&](const Box& from, const Box& to) { check_boxes(group, from, to); });
      }
    for (const Transfer& t : exchange.transfers) moved += uint64_t{t.rows} * t.cols;
    if (moved != wanted) fail(fmt::format("{} moves {} of {} elements", where_(), moved, wanted));
  }

  void check_boxes(const program::CopyGroup& group, const Box& source, const Box& target) {
    const size_t element = size_of(program_.variable(group.from).type);
    TouchLog& log = overlaps_->log();
    each_home(
        group.from, source, [&](const BoxAddress& from, const Box& part, Overlaps::StorageId origin_of) {
          log.read(origin_of);
          const Box shifted = program::corresponding(part, source, target);
          each_home(
              group.to, shifted, [&](const BoxAddress& to, const Box& common, Overlaps::StorageId storage) {
                log.write(storage, group.target_offset ? 0 : common.elements());
                const BoxAddress origin =
                    moved(from, common.row - shifted.row, common.col - shifted.col, element);
                if (!before_.has(origin, to, common))
                  fail(fmt::format("{} misses a transfer from '{}' to '{}'", where_(),
                                   program_.variable(group.from).name, program_.variable(group.to).name));
              });
        });
  }

  // Collectives.

  void check_collective(program::CollectiveId id) {
    const program::Collective& collective = program_.collectives()[id];
    const program::CollectiveKind kind = collective.kind;
    for (const program::Exchanged& exchanged : collective.variables) {
      check_line(exchanged.whole, program::reads_whole(kind), program::writes_whole(kind));
      if (exchanged.part) check_line(*exchanged.part, program::reads_part(kind), program::writes_part(kind));
      if (exchanged.buffer) check_line(*exchanged.buffer, false, false);
    }
    overlaps_->close(touchers_.of_collective(id));
  }

  /// Mapped boxes are lines of elements on their tiles.
  void check_line(VariableId v, bool is_read, bool is_written) {
    check_mapped(v);
    TouchLog& log = overlaps_->log();
    for (uint32_t i = 0; i < e_.mapped[v].size(); ++i) {
      const Box& box = program_.variable(v).mapping[i].box;
      if (box.empty()) continue;
      const BoxAddress& place = e_.mapped[v][i];
      if (place.store != Store::arena || (box.rows > 1 && place.stride != box.cols))
        fail(fmt::format("a box of '{}', which replicas exchange, is not one line of its tile's memory",
                         program_.variable(v).name));
      if (is_read) log.read(overlaps_->mapped(v, i));
      if (is_written) log.write(overlaps_->mapped(v, i), box.elements());
      if (!is_read && !is_written) log.use(overlaps_->mapped(v, i));
    }
  }

  // Reads and writes of control flow.

  void note_runtime_rows(const program::ComputeSet& set) {
    for (const program::VertexGroup& group : set.groups)
      for (const program::Field& field : group.fields)
        if (field.row) overlaps_->log().read(overlaps_->mapped(field.row->index, 0));
  }
  void note_runtime_rows(const program::CopySet& set) {
    for (const program::CopyGroup& group : set.groups)
      for (const auto& row : {group.source_offset, group.target_offset})
        if (row) overlaps_->log().read(overlaps_->mapped(row->index, 0));
  }

  void note_control() {
    const std::vector<program::Step>& steps = program_.steps();
    for (program::StepId id = 0; id < steps.size(); ++id) {
      if (const auto* repeat = std::get_if<program::Repeat>(&steps[id])) {
        if (repeat->counter) overlaps_->log().write(overlaps_->mapped(*repeat->counter, 0), 1);
      } else if (const auto* loop = std::get_if<program::While>(&steps[id])) {
        overlaps_->log().read(overlaps_->mapped(loop->condition, 0));
      } else if (const auto* branch = std::get_if<program::If>(&steps[id])) {
        overlaps_->log().read(overlaps_->mapped(branch->condition, 0));
      } else if (const auto* call = std::get_if<program::Call>(&steps[id])) {
        note_call(id, *call);
      } else if (const auto* collect = std::get_if<program::Collect>(&steps[id])) {
        if (collect->beside != program::kNoStep) note_beside(id, *collect);
      } else if (const auto* copy = std::get_if<program::Copy>(&steps[id])) {
        if (copy->beside != program::kNoStep) note_beside(id, *copy);
      }
      overlaps_->close(touchers_.of_control(id));
    }
  }

  /// What a call passes is in use while its function uses it.
  void note_call(program::StepId id, const program::Call& call) {
    const std::vector<FunctionSteps::Bound>& bounds = touchers_.function(call.function).bounds;
    for (uint32_t bound = 0; bound < bounds.size(); ++bound) {
      for (const FunctionSteps::Use& passed : bounds[bound].uses) {
        const program::CallOperand& operand = call.operands[passed.argument];
        for (uint32_t box = 0; box < e_.mapped[operand.variable].size(); ++box) {
          const Overlaps::StorageId storage = overlaps_->mapped(operand.variable, box);
          if (passed.reads) overlaps_->log().read(storage);
          if (passed.writes) overlaps_->log().write(storage, operand.box.elements());
        }
      }
      overlaps_->close(touchers_.of_bound(id, bound));
    }
  }

  /// What a collective fills is in use from its start to its end, while other steps run.
  void note_beside(program::StepId id, const program::Collect& collect) {
    const auto each_line = [&](const auto& visit) {
      program::each_filled(program_.collectives()[collect.collective], [&](VariableId v) {
        for (uint32_t i = 0; i < e_.mapped[v].size(); ++i)
          if (const Box& box = program_.variable(v).mapping[i].box; !box.empty())
            visit(overlaps_->mapped(v, i), box.elements());
      });
    };
    each_line(
        [&](Overlaps::StorageId storage, uint64_t elements) { overlaps_->log().write(storage, elements); });
    overlaps_->close(touchers_.of_control(id));
    each_line([&](Overlaps::StorageId storage, uint64_t) { overlaps_->log().read(storage); });
    overlaps_->close(touchers_.of_end(id));
  }

  /// What copies read and fill is in use from their start to their end, while other steps run.
  void note_beside(program::StepId id, const program::Copy& copy) {
    const std::vector<program::CopyGroup>& groups = program_.copy_sets()[copy.set].groups;
    const auto each_box = [&](VariableId v, const auto& visit) {
      for (uint32_t i = 0; i < e_.mapped[v].size(); ++i)
        if (const Box& box = program_.variable(v).mapping[i].box; !box.empty())
          visit(overlaps_->mapped(v, i), box.elements());
    };
    const auto read = [&](Overlaps::StorageId storage, uint64_t) { overlaps_->log().read(storage); };
    for (const program::CopyGroup& group : groups) {
      each_box(group.from, read);
      each_box(group.to, [&](Overlaps::StorageId storage, uint64_t elements) {
        overlaps_->log().write(storage, elements);
      });
    }
    overlaps_->close(touchers_.of_control(id));
    for (const program::CopyGroup& group : groups) {
      each_box(group.from, read);
      each_box(group.to, read);
    }
    overlaps_->close(touchers_.of_end(id));
  }

  // Places.

  template <class What>
  void check_inside(const BoxAddress& place, VariableId v, uint64_t rows, uint64_t cols,
                    const What& what) const {
    const Variable& variable = program_.variable(v);
    if (place.store == Store::arena) return check_in_arena(place, rows, cols, size_of(variable.type), what);
    if (rows == 0 || cols == 0) return;
    if (place.store == Store::argument) return check_in_argument(place, v, rows, cols, what);
    uint64_t row = place.offset >> 32;
    uint64_t col = place.offset & 0xFFFFFFFFU;
    if (place.store == Store::contents) {
      if (variable.role != program::Role::constant || variable.contents == nullptr ||
          place.stride != variable.cols || place.stride == 0)
        fail(fmt::format("{} has no contents", what()));
      row = place.offset / size_of(variable.type) / variable.cols;
      col = place.offset / size_of(variable.type) % variable.cols;
    } else if (!variable.is_external() && !(variable.is_argument() && variable.is_shared())) {
      fail(fmt::format("{} is not a caller's array", what()));
    }
    if (place.space != v || row + rows > variable.rows || col + cols > variable.cols)
      fail(fmt::format("{} leaves '{}'", what(), variable.name));
  }

  template <class What>
  void check_in_argument(const BoxAddress& place, VariableId v, uint64_t rows, uint64_t cols,
                         const What& what) const {
    if (place.argument_box() >= argument_boxes_.size() || argument_boxes_[place.argument_box()].variable != v)
      fail(fmt::format("{} is not in a box of '{}'", what(), program_.variable(v).name));
    const auto& [box, tile] = program_.variable(v).mapping[argument_boxes_[place.argument_box()].position];
    const uint64_t element = place.argument_offset() / size_of(program_.variable(v).type);
    if (place.space != tile || place.stride != box.cols || place.stride == 0 ||
        element / place.stride + rows > box.rows || element % place.stride + cols > box.cols)
      fail(fmt::format("{} leaves a box of '{}'", what(), program_.variable(v).name));
  }

  template <class What>
  void check_in_arena(const BoxAddress& place, uint64_t rows, uint64_t cols, size_t element,
                      const What& what) const {
    if (rows == 0 || cols == 0) return;
    if (!is_space(place.space))
      fail(fmt::format("{} lies on {} of {}", what(), name_of(place.space), machine_.tiles));
    const uint64_t bytes = arena_bytes_[slot_of(machine_, place.space)];
    if (cols > place.stride && rows > 1) fail(fmt::format("{} has rows that overlap", what()));
    const uint64_t pitch = std::max<uint64_t>(1, place.stride * element);
    const uint64_t end = place.offset + (rows - 1) * pitch + cols * element;
    if (rows - 1 > bytes / pitch || place.offset > bytes || end > bytes)
      fail(fmt::format("{} ends at byte {} of {} in {}", what(), end, bytes, name_of(place.space)));
  }

  const Executable& e_;
  const program::Program& program_;
  const machine::Machine& machine_;
  Touchers touchers_{program_};
  std::optional<Overlaps> overlaps_;
  std::vector<bool> controls_;  ///< by variable: whether control flow reads it
  std::vector<ArgumentBox> argument_boxes_;
  program::MappingIndex mappings_;
  std::vector<uint64_t> arena_bytes_;  ///< by space
  std::vector<VariableId> handed_on_;  ///< in the current compute set
  TransferList before_;                ///< before the current compute set, or of the copy set
  TransferList after_;
  std::function<std::string()> where_;
};

}  // namespace

void check_executable(const Executable& executable) { Checker(executable).check(); }

std::string check(Compilation& c) {
  check_executable(*c.executable);
  return "sound";
}

}  // namespace tessera::compiler
