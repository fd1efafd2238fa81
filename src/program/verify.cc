#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "program/calls.h"
#include "program/collective.h"
#include "program/conflicts.h"
#include "program/mapping_index.h"
#include "program/order.h"
#include "program/program.h"

namespace tessera::program {
namespace {

/// Limits the depth of control flow: everything that walks it recurses once per level.
constexpr uint32_t kDeepestStep = 1000;

/// Number of the owner that reads run-time rows, which is no vertex.
constexpr uint64_t kControl = ~uint64_t{0};

/// What a box may touch if it moves down its variable at run time.
Box any_row_of(const Box& box, const Variable& v) { return {0, v.rows, box.col, box.cols}; }

class Verifier {
 public:
  Verifier(const Program& program, uint32_t tiles, bool has_shared_space)
      : program_(program), tiles_(tiles), has_shared_space_(has_shared_space), touched_(program) {}

  void verify() {
    for (const Variable& variable : program_.variables()) check(variable);
    check_names_of_state();
    for (const ComputeSet& set : program_.compute_sets()) check(set);
    for (const CopySet& set : program_.copy_sets()) check(set);
    check_control_flow();
    verify_calls(program_);
    verify_collectives(program_);
  }

 private:
  const Variable& variable(VariableId id, std::string_view where) const {
    if (id >= program_.variables().size())
      reject(fmt::format("{} refers to variable {} of {}", where, id, program_.variables().size()));
    return program_.variables()[id];
  }

  void check(const Variable& v) {
    uint64_t covered = 0;
    for (const MappedBox& mapped : v.mapping) {
      if (!contains(v.whole(), mapped.box))
        reject(fmt::format("mapping of '{}' ({} × {}) names {} outside it", v.name, v.rows, v.cols,
                           box_text(mapped.box)));
      if (mapped.tile == kShared ? !has_shared_space_ : mapped.tile >= tiles_)
        reject(mapped.tile == kShared
                   ? fmt::format("'{}' lies in a shared space, which this machine lacks", v.name)
                   : fmt::format("'{}' is mapped to tile {} of {}", v.name, mapped.tile, tiles_));
      covered += mapped.box.elements();
      touched_.add_write(static_cast<VariableId>(&v - program_.variables().data()), mapped.box, {});
    }
    if (v.streaming) check_streaming(v);
    touched_.check_and_clear("mapping");
    if (covered != v.elements())
      reject(fmt::format("the mapping of '{}' covers {} of {} elements", v.name, covered, v.elements()));
    if (v.role == Role::constant && v.elements() != 0 && v.contents == nullptr)
      reject(fmt::format("constant '{}' has no contents", v.name));
  }

  void check_streaming(const Variable& v) const {
    if (v.role != Role::state && v.role != Role::temporary)
      reject(fmt::format("'{}' lies in streaming memory, which has state and temporaries only", v.name));
    if (has_shared_space_)
      reject(fmt::format("'{}' lies in streaming memory, which a machine with a shared space lacks", v.name));
  }

  /// State is read, written, saved and loaded by name.
  void check_names_of_state() const {
    std::set<std::string_view> names;
    for (const Variable& v : program_.variables()) {
      if (v.role != Role::state) continue;
      if (v.name.empty()) reject("a state variable has no name");
      if (!names.insert(v.name).second) reject(fmt::format("two state variables are called '{}'", v.name));
    }
  }

  void check_writable(const Variable& v, std::string_view where) const {
    if (v.is_read_only()) reject(fmt::format("{} writes '{}', which is read only", where, v.name));
  }

  static void check_series(const BoxSeries& boxes, uint32_t count, std::string_view where) {
    if (boxes.is_table() && boxes.boxes().size() != count)
      reject(fmt::format("{} has {} boxes for {} vertices or copies", where, boxes.boxes().size(), count));
    if (boxes.inner_count() == 0) reject(fmt::format("{} has a grid of boxes without columns", where));
  }

  // Compute sets.

  void check(const ComputeSet& set) {
    for (const VertexGroup& group : set.groups) check_signature(set, group);
    if (set.ordered && !set.groups.empty()) check_order(set);
    const std::set<VariableId> meeting = meeting_anywhere(set);
    Owner first{};
    for (const VertexGroup& group : set.groups) {
      for (size_t f = 0; f < group.fields.size(); ++f) check_field(set, group, f, first, meeting);
      if (set.ordered)
        ++first.round;
      else
        first.number += group.count();
    }
    touched_.check_and_clear(fmt::format("compute set '{}'", set.name));
  }

  /// Variables whose fields have different run-time rows, or of which only some have one: any two of their
  /// rows may coincide.
  static std::set<VariableId> meeting_anywhere(const ComputeSet& set) {
    std::map<VariableId, std::optional<RuntimeRow>> rows;
    std::set<VariableId> meeting;
    for (const VertexGroup& group : set.groups)
      for (const Field& field : group.fields)
        if (rows.try_emplace(field.variable, field.row).first->second != field.row)
          meeting.insert(field.variable);
    return meeting;
  }

  /// Vertices run one after another on one tile, and pass on nothing through exchanges.
  void check_order(const ComputeSet& set) {
    const VertexGroup& first = set.groups.front();
    for (const VertexGroup& group : set.groups)
      if (group.first_tile != first.first_tile || group.tiles != first.tiles ||
          group.per_tile != first.per_tile)
        reject(fmt::format("ordered compute set '{}' has groups of different tiles or vertices per tile",
                           set.name));
    if (!mappings_) mappings_.emplace(program_);
    const std::vector<VariableId> handed = handed_on(set);
    for (const VertexGroup& group : set.groups)
      for (size_t f = 0; f < group.fields.size(); ++f)
        if (std::ranges::find(handed, group.fields[f].variable) != handed.end())
          check_resident(set, group, f);
  }

  void check_resident(const ComputeSet& set, const VertexGroup& group, size_t f) {
    const Field& field = group.fields[f];
    const FieldSpec& spec = group.codelet->fields[f];
    const Variable& v = variable(field.variable, set.name);
    check_series(field.boxes, group.count(), set.name);
    for (uint32_t i = 0; i < group.count(); ++i) {
      const Box box = intersection(field.boxes.at(i), v.whole());
      if (!box.empty() &&
          !mappings_->resident(field.variable, box, group.tile_of(i), spec.alignment, field.row))
        reject(
            fmt::format("ordered compute set '{}' hands on {} of '{}', which do not lie on tile {} where "
                        "field '{}' of '{}' needs them",
                        set.name, box_text(box), v.name, group.tile_of(i), spec.name, group.codelet->name));
    }
  }

  static void check_codelet(const ComputeSet& set, const Codelet* codelet) {
    if (codelet == nullptr) reject(fmt::format("compute set '{}' has a group without codelet", set.name));
    if (codelet->reference == nullptr || codelet->cost == nullptr)
      reject(fmt::format("codelet '{}' lacks a reference implementation or a cost", codelet->name));
    if (codelet->fields.size() > kMaxFields || codelet->params.size() > kMaxParams)
      reject(fmt::format("codelet '{}' has {} fields and {} parameters; {} and {} are the most",
                         codelet->name, codelet->fields.size(), codelet->params.size(), kMaxFields,
                         kMaxParams));
  }

  void check_signature(const ComputeSet& set, const VertexGroup& group) const {
    check_codelet(set, group.codelet);
    const Codelet& codelet = *group.codelet;
    const std::string where = fmt::format("'{}' in compute set '{}'", codelet.name, set.name);
    if (codelet.runs_on == RunsOn::hosts && !has_shared_space_)
      reject(fmt::format("{} needs a shared space, which this machine lacks", where));
    if (uint64_t{group.first_tile} + group.tiles > tiles_)
      reject(fmt::format("{} lies on tiles {}:{} of {}", where, group.first_tile,
                         uint64_t{group.first_tile} + group.tiles, tiles_));
    if (uint64_t{group.tiles} * group.per_tile > std::numeric_limits<uint32_t>::max())
      reject(fmt::format("{} has {} × {} vertices, too many to number", where, group.tiles, group.per_tile));
    if (group.fields.size() != codelet.fields.size() || group.params.size() != codelet.params.size())
      reject(fmt::format("{} has {} fields and {} parameters; its codelet has {} and {}", where,
                         group.fields.size(), group.params.size(), codelet.fields.size(),
                         codelet.params.size()));
    for (const Param& param : group.params)
      if (!param.table.empty() && param.table.size() != group.count())
        reject(fmt::format("{}: a parameter has {} values for {} vertices", where, param.table.size(),
                           group.count()));
  }

  void check_field(const ComputeSet& set, const VertexGroup& group, size_t f, Owner first,
                   const std::set<VariableId>& meeting) {
    const FieldSpec& spec = group.codelet->fields[f];
    const Field& field = group.fields[f];
    const std::string where =
        fmt::format("field '{}' of '{}' in compute set '{}'", spec.name, group.codelet->name, set.name);
    const Variable& v = variable(field.variable, where);
    if (v.streaming) reject(fmt::format("{} is '{}', which lies in streaming memory", where, v.name));
    if (spec.access != Access::in) check_writable(v, where);
    check_series(field.boxes, group.count(), where);
    // Nobody writes read-only variables, so reading them cannot conflict.
    const bool is_read = reads(spec.access) && !v.is_read_only();
    const bool moves = meeting.count(field.variable) != 0;
    if (field.row) {
      check_runtime_row(where, field.variable, field.row);
      touched_.add_read(field.row->index, {0, 1, 0, 1}, {kControl});
    }
    for (uint32_t i = 0; i < group.count(); ++i) {
      const Box box = field.boxes.at(i);
      if (box.row > v.rows || box.col > v.cols || (field.boxes.is_table() && !contains(v.whole(), box)))
        reject(
            fmt::format("{}: {} lie outside '{}' ({} × {})", where, box_text(box), v.name, v.rows, v.cols));
      Box touched = intersection(box, v.whole());
      if (spec.scattered && i > 0 && box == field.boxes.at(i - 1)) continue;
      Owner owner{first.number + i, first.round, 0};
      if (moves && !touched.empty()) {
        touched = any_row_of(touched, v);
        owner.place = static_cast<uint32_t>(f + 1);
      }
      if (is_read) touched_.add_read(field.variable, touched, owner);
      if (writes(spec.access)) touched_.add_write(field.variable, touched, owner);
    }
  }

  // Copies.

  void check(const CopySet& set) {
    const std::string where = fmt::format("copy '{}'", set.name);
    uint64_t owner = 0;
    for (const CopyGroup& group : set.groups) {
      check_variables(where, group);
      check_series(group.source, group.count, where);
      check_series(group.target, group.count, where);
      check_runtime_row(where, group.from, group.source_offset);
      check_runtime_row(where, group.to, group.target_offset);
      if (group.source_rows && group.source_offset)
        reject(
            fmt::format("{} gathers listed rows of '{}' and moves them at run time; it may do one of the two",
                        where, program_.variables()[group.from].name));
      // A copy reads as one owner and writes as another: it must not overlap itself either.
      for (uint32_t i = 0; i < group.count; ++i, owner += 2) check_copy(where, group, i, owner);
    }
    touched_.check_and_clear(where);
  }

  void check_variables(const std::string& where, const CopyGroup& group) const {
    const Variable& from = variable(group.from, where);
    const Variable& to = variable(group.to, where);
    if (from.type != to.type)
      reject(fmt::format("{}: '{}' is {}, '{}' is {}", where, from.name, name_of(from.type), to.name,
                         name_of(to.type)));
    check_writable(to, where);
  }

  void check_runtime_row(const std::string& where, VariableId id,
                         const std::optional<RuntimeRow>& row) const {
    if (!row) return;
    check_control_variable(row->index);
    const Variable& v = program_.variables()[id];
    for (const MappedBox& mapped : v.mapping)
      if (mapped.box.rows != v.rows)
        reject(
            fmt::format("{} has a run-time row of '{}', whose rows lie in several spaces; map whole "
                        "columns of it",
                        where, v.name));
  }

  void check_copy(const std::string& where, const CopyGroup& group, uint32_t index, uint64_t owner) {
    const Variable& from = program_.variables()[group.from];
    const Variable& to = program_.variables()[group.to];
    const Box source = group.source.at(index);
    const Box target = group.target.at(index);
    if (source.rows != target.rows || source.cols != target.cols)
      reject(fmt::format("{}: {} of '{}' do not have the shape of {} of '{}'", where, box_text(source),
                         from.name, box_text(target), to.name));
    const auto check_inside = [&](const Box& bounds, const Box& box, const Variable& v) {
      if (!contains(bounds, box))
        reject(
            fmt::format("{}: {} lie outside '{}' ({} × {})", where, box_text(box), v.name, v.rows, v.cols));
    };
    check_inside(to.whole(), target, to);
    const Box list{0, group.source_rows ? static_cast<uint32_t>(group.source_rows->size()) : 0, 0, from.cols};
    check_inside(group.source_rows ? list : from.whole(), source, from);
    if (from.streaming || to.streaming) check_streamed(where, group, source, target);
    const Owner writer{owner};
    const Owner reader{owner + 1};
    touched_.add_write(group.to, group.target_offset ? any_row_of(target, to) : target, writer);
    if (group.source_rows) check_rows(where, group, source);
    if (from.is_read_only()) return;
    if (!group.source_rows)
      touched_.add_read(group.from, group.source_offset ? any_row_of(source, from) : source, reader);
    else
      for (uint64_t r = source.row; r < source.row_end(); ++r)
        touched_.add_read(group.from, {(*group.source_rows)[r], 1, source.col, source.cols}, reader);
  }

  /// A tile moves its own boxes from and to streaming memory, and not within it.
  void check_streamed(const std::string& where, const CopyGroup& group, const Box& source,
                      const Box& target) {
    const Variable& from = program_.variables()[group.from];
    const Variable& to = program_.variables()[group.to];
    if (from.streaming && to.streaming)
      reject(fmt::format("{} moves '{}' to '{}' within streaming memory", where, from.name, to.name));
    if (group.source_rows)
      reject(fmt::format("{} gathers rows of '{}' or '{}', which lies in streaming memory", where, from.name,
                         to.name));
    if (!mappings_) mappings_.emplace(program_);
    mappings_->each_overlap(group.from, source, [&](uint32_t i, const Box& part) {
      mappings_->each_overlap(group.to, corresponding(part, source, target), [&](uint32_t j, const Box&) {
        if (from.mapping[i].tile != to.mapping[j].tile)
          reject(
              fmt::format("{} moves '{}' of tile {} to '{}' of tile {}, one of which lies in streaming "
                          "memory, which tiles move by themselves",
                          where, from.name, from.mapping[i].tile, to.name, to.mapping[j].tile));
      });
    });
  }

  void check_rows(const std::string& where, const CopyGroup& group, const Box& source) const {
    const Variable& from = program_.variables()[group.from];
    for (uint64_t r = source.row; r < source.row_end(); ++r)
      if (const uint32_t row = (*group.source_rows)[r]; row >= from.rows)
        reject(fmt::format("{} gathers row {} of '{}' ({} rows)", where, row, from.name, from.rows));
  }

  // Control flow.

  void check_control_flow() {
    states_.assign(program_.steps().size(), State::unseen);
    if (program_.main() == kNoStep) reject("it has no main step");
    visit(program_.main());
    for (const Function& function : program_.functions()) visit(function.body);
    for (StepId step = 0; step < program_.steps().size(); ++step) visit(step);
  }

  enum class State : uint8_t { unseen, open, done };

  void visit(StepId id) {
    if (id == kNoStep) return;
    if (id >= program_.steps().size())
      reject(fmt::format("step {} of {} does not exist", id, program_.steps().size()));
    if (states_[id] == State::done) return;
    if (states_[id] == State::open) reject(fmt::format("step {} reaches itself", id));
    if (++depth_ > kDeepestStep)
      reject(fmt::format("steps lie within one another deeper than {}", kDeepestStep));
    states_[id] = State::open;
    std::visit([this](const auto& step) { visit_inside(step); }, program_.steps()[id]);
    states_[id] = State::done;
    --depth_;
  }

  void visit_inside(const Sequence& s) {
    for (StepId step : s.steps) visit(step);
  }
  void visit_inside(const Execute& e) {
    if (e.set >= program_.compute_sets().size()) reject(fmt::format("compute set {} does not exist", e.set));
  }
  void visit_inside(const Copy& c) {
    if (c.set >= program_.copy_sets().size()) reject(fmt::format("copy set {} does not exist", c.set));
    visit(c.beside);
  }
  void visit_inside(const Collect& c) {
    if (c.collective >= program_.collectives().size())
      reject(fmt::format("collective {} does not exist", c.collective));
    visit(c.beside);
  }
  void visit_inside(const Repeat& r) {
    if (r.counter) {
      check_control_variable(*r.counter);
      check_writable(program_.variables()[*r.counter], "a repeat");
    }
    visit(r.body);
  }
  void visit_inside(const While& w) {
    check_control_variable(w.condition);
    visit(w.test);
    visit(w.body);
  }
  void visit_inside(const If& branch) {
    check_control_variable(branch.condition);
    visit(branch.then);
    visit(branch.otherwise);
  }
  void visit_inside(const Call& c) {
    if (c.function >= program_.functions().size())
      reject(fmt::format("function {} does not exist", c.function));
    visit(program_.functions()[c.function].body);
  }

  void check_control_variable(VariableId id) const {
    const Variable& v = variable(id, "control flow");
    if (v.streaming) reject(fmt::format("control variable '{}' lies in streaming memory", v.name));
    if (v.type != Type::u32 || v.elements() != 1)
      reject(fmt::format("control variable '{}' is {} {} × {}; it must be one u32", v.name, name_of(v.type),
                         v.rows, v.cols));
    if (v.mapping.size() != 1)
      reject(fmt::format("control variable '{}' is mapped by {} boxes; it must be one", v.name,
                         v.mapping.size()));
  }

  const Program& program_;
  uint32_t tiles_;
  bool has_shared_space_;
  TouchLog touched_;
  std::optional<MappingIndex> mappings_;  ///< once needed
  std::vector<State> states_;
  uint32_t depth_ = 0;
};

}  // namespace

void verify(const Program& program, uint32_t tiles, bool has_shared_space) {
  Verifier(program, tiles, has_shared_space).verify();
}

}  // namespace tessera::program
