#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "program/program.h"

namespace tessera::program {
namespace {

[[noreturn]] void reject(const std::string& what) { throw Error("unsound tile program: " + what); }

std::string text(const Box& box) {
  return fmt::format("rows {}:{} × columns {}:{}", box.row, box.row_end(), box.col, box.col_end());
}

/// A box that somebody (a vertex, a copy) touches.
struct Touch {
  Box box;
  uint64_t owner = 0;
};

/// Finds an overlap between a write and anything that another owner touches.
class ConflictFinder {
 public:
  void add_write(VariableId variable, Touch touch) {
    if (!touch.box.empty()) touched_[variable].writes.push_back(touch);
  }
  void add_read(VariableId variable, Touch touch) {
    if (!touch.box.empty()) touched_[variable].reads.push_back(touch);
  }

  void check(const Program& program, std::string_view where) {
    for (auto& [id, touches] : touched_) {
      if (touches.writes.empty()) continue;
      sort_by_row(touches.writes);
      const auto fail = [&, variable = id](const Box& a, std::string_view how) {
        reject(fmt::format("{}: {} of '{}' {}", where, text(a), program.variable(variable).name, how));
      };
      if (const Box* twice = overlap_among(touches.writes))
        fail(*twice, "are written by two vertices or copies");
      for (const Touch& read : touches.reads)
        if (overlaps_other(touches.writes, read))
          fail(read.box, "are read by one vertex or copy and written by another");
    }
  }

 private:
  struct Touches {
    std::vector<Touch> writes;
    std::vector<Touch> reads;
  };

  static void sort_by_row(std::vector<Touch>& touches) {
    std::sort(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) {
      return std::tie(a.box.row, a.box.col) < std::tie(b.box.row, b.box.col);
    });
  }

  /// Sweeps down the rows with the column intervals that are open, which do not overlap.
  static const Box* overlap_among(const std::vector<Touch>& writes) {
    std::map<uint64_t, const Touch*> open;  // by first column
    std::multimap<uint64_t, uint64_t> closing;  // row at which the interval of that column closes
    for (const Touch& write : writes) {
      while (!closing.empty() && closing.begin()->first <= write.box.row) {
        const auto it = open.find(closing.begin()->second);
        if (it != open.end() && it->second->box.row_end() <= write.box.row) open.erase(it);
        closing.erase(closing.begin());
      }
      auto next = open.lower_bound(write.box.col);
      if (next != open.end() && next->first < write.box.col_end()) return &write.box;
      if (next != open.begin() && std::prev(next)->second->box.col_end() > write.box.col)
        return &write.box;
      open.emplace(write.box.col, &write);
      closing.emplace(write.box.row_end(), write.box.col);
    }
    return nullptr;
  }

  static bool overlaps_other(const std::vector<Touch>& writes, const Touch& read) {
    const auto end = std::partition_point(writes.begin(), writes.end(), [&](const Touch& w) {
      return w.box.row < read.box.row_end();
    });
    return std::any_of(writes.begin(), end, [&](const Touch& w) {
      return w.owner != read.owner && overlap(w.box, read.box);
    });
  }

  std::unordered_map<VariableId, Touches> touched_;
};

class Verifier {
 public:
  Verifier(const Program& program, uint32_t tiles, bool has_shared_space)
      : program_(program), tiles_(tiles), has_shared_space_(has_shared_space) {}

  void verify() {
    for (const Variable& variable : program_.variables()) check(variable);
    for (const ComputeSet& set : program_.compute_sets()) check(set);
    for (const CopySet& set : program_.copy_sets()) check(set);
    check_control_flow();
  }

 private:
  const Variable& variable(VariableId id, std::string_view where) const {
    if (id >= program_.variables().size())
      reject(fmt::format("{} refers to variable {} of {}", where, id, program_.variables().size()));
    return program_.variables()[id];
  }

  void check(const Variable& v) const {
    uint64_t covered = 0;
    ConflictFinder mapped_twice;
    for (const MappedBox& mapped : v.mapping) {
      if (!contains(v.whole(), mapped.box))
        reject(fmt::format("mapping of '{}' ({} × {}) names {} outside it", v.name, v.rows, v.cols,
                           text(mapped.box)));
      if (mapped.tile == kShared ? !has_shared_space_ : mapped.tile >= tiles_)
        reject(mapped.tile == kShared
                   ? fmt::format("'{}' lies in a shared space, which this machine lacks", v.name)
                   : fmt::format("'{}' is mapped to tile {} of {}", v.name, mapped.tile, tiles_));
      covered += mapped.box.elements();
      mapped_twice.add_write(static_cast<VariableId>(&v - program_.variables().data()),
                             {mapped.box, 0});
    }
    mapped_twice.check(program_, "mapping");
    if (covered != v.elements())
      reject(fmt::format("the mapping of '{}' covers {} of {} elements", v.name, covered, v.elements()));
    if (v.role == Role::constant && v.elements() != 0 && v.contents == nullptr)
      reject(fmt::format("constant '{}' has no contents", v.name));
  }

  void check(const ComputeSet& set) const {
    ConflictFinder conflicts;
    uint64_t first_owner = 0;
    for (const VertexGroup& group : set.groups) {
      check_signature(set, group);
      for (size_t f = 0; f < group.fields.size(); ++f)
        check_field(set, group, f, first_owner, conflicts);
      first_owner += group.count();
    }
    conflicts.check(program_, fmt::format("compute set '{}'", set.name));
  }

  void check_signature(const ComputeSet& set, const VertexGroup& group) const {
    if (group.codelet == nullptr) reject(fmt::format("compute set '{}' has a group without codelet", set.name));
    const Codelet& codelet = *group.codelet;
    const std::string where = fmt::format("'{}' in compute set '{}'", codelet.name, set.name);
    if (uint64_t{group.first_tile} + group.tiles > tiles_)
      reject(fmt::format("{} lies on tiles {}:{} of {}", where, group.first_tile,
                         uint64_t{group.first_tile} + group.tiles, tiles_));
    if (group.fields.size() != codelet.fields.size() || group.params.size() != codelet.params.size())
      reject(fmt::format("{} has {} fields and {} parameters; its codelet has {} and {}", where,
                         group.fields.size(), group.params.size(), codelet.fields.size(),
                         codelet.params.size()));
    for (const Param& param : group.params)
      if (!param.table.empty() && param.table.size() != group.count())
        reject(fmt::format("{}: a parameter has {} values for {} vertices", where,
                           param.table.size(), group.count()));
  }

  void check_field(const ComputeSet& set, const VertexGroup& group, size_t f, uint64_t first_owner,
                   ConflictFinder& conflicts) const {
    const FieldSpec& spec = group.codelet->fields[f];
    const Field& field = group.fields[f];
    const std::string where = fmt::format("field '{}' of '{}' in compute set '{}'", spec.name,
                                          group.codelet->name, set.name);
    const Variable& v = variable(field.variable, where);
    if (spec.access != Access::in && (v.role == Role::input || v.role == Role::constant))
      reject(fmt::format("{} writes '{}', which is read only", where, v.name));
    if (field.boxes.is_table() && field.boxes.boxes().size() != group.count())
      reject(fmt::format("{} has {} boxes for {} vertices", where, field.boxes.boxes().size(),
                         group.count()));
    for (uint32_t i = 0; i < group.count(); ++i) {
      const Box box = field.boxes.at(i);
      if (box.row > v.rows || box.col > v.cols ||
          (field.boxes.is_table() && !contains(v.whole(), box)))
        reject(fmt::format("{}: {} lie outside '{}' ({} × {})", where, text(box), v.name, v.rows, v.cols));
      const Touch touch{field_box(program_, field, i), first_owner + i};
      if (spec.access != Access::out) conflicts.add_read(field.variable, touch);
      if (spec.access != Access::in) conflicts.add_write(field.variable, touch);
    }
  }

  void check(const CopySet& set) const {
    ConflictFinder conflicts;
    uint64_t owner = 0;
    for (const CopyGroup& group : set.groups) {
      const std::string where = fmt::format("copy '{}'", set.name);
      const Variable& from = variable(group.from, where);
      const Variable& to = variable(group.to, where);
      if (from.type != to.type)
        reject(fmt::format("{}: '{}' is {}, '{}' is {}", where, from.name, name_of(from.type),
                           to.name, name_of(to.type)));
      if (to.role == Role::input || to.role == Role::constant)
        reject(fmt::format("{} writes '{}', which is read only", where, to.name));
      for (uint32_t i = 0; i < group.count; ++i, ++owner)
        check_copy(where, group, i, owner, conflicts);
    }
    conflicts.check(program_, fmt::format("copy '{}'", set.name));
  }

  void check_copy(const std::string& where, const CopyGroup& group, uint32_t index, uint64_t owner,
                  ConflictFinder& conflicts) const {
    const Variable& from = program_.variables()[group.from];
    const Variable& to = program_.variables()[group.to];
    const Box source = group.source.at(index);
    const Box target = group.target.at(index);
    if (source.rows != target.rows || source.cols != target.cols)
      reject(fmt::format("{}: {} of '{}' do not have the shape of {} of '{}'", where, text(source),
                         from.name, text(target), to.name));
    if (!contains(to.whole(), target))
      reject(fmt::format("{}: {} lie outside '{}' ({} × {})", where, text(target), to.name, to.rows, to.cols));
    const Box bounds = group.source_rows
                           ? Box{0, static_cast<uint32_t>(group.source_rows->size()), 0, from.cols}
                           : from.whole();
    if (!contains(bounds, source))
      reject(fmt::format("{}: {} lie outside '{}' ({} × {})", where, text(source), from.name, from.rows, from.cols));
    // Where a box moves at run time, any row may be touched.
    const auto anywhere = [](Box box, const Variable& v) { return Box{0, v.rows, box.col, box.cols}; };
    conflicts.add_write(group.to, {group.target_offset ? anywhere(target, to) : target, owner});
    if (!group.source_rows) {
      conflicts.add_read(group.from, {group.source_offset ? anywhere(source, from) : source, owner});
      return;
    }
    for (uint32_t r = source.row; r < source.row_end(); ++r) {
      const uint32_t row = (*group.source_rows)[r];
      if (row >= from.rows) reject(fmt::format("{} gathers row {} of '{}' ({} rows)", where, row, from.name, from.rows));
      if (group.from == group.to) conflicts.add_read(group.from, {{row, 1, source.col, source.cols}, owner});
    }
  }

  void check_control_flow() {
    states_.assign(program_.steps().size(), State::unseen);
    if (program_.main() == kNoStep) reject("it has no main step");
    visit(program_.main());
    for (const Function& function : program_.functions()) visit(function.body);
  }

  enum class State : uint8_t { unseen, open, done };

  void visit(StepId id) {
    if (id == kNoStep) return;
    if (id >= program_.steps().size()) reject(fmt::format("step {} of {} does not exist", id, program_.steps().size()));
    if (states_[id] == State::done) return;
    if (states_[id] == State::open) reject(fmt::format("step {} reaches itself", id));
    states_[id] = State::open;
    std::visit([this](const auto& step) { visit_inside(step); }, program_.steps()[id]);
    states_[id] = State::done;
  }

  void visit_inside(const Sequence& s) {
    for (StepId step : s.steps) visit(step);
  }
  void visit_inside(const Execute& e) {
    if (e.set >= program_.compute_sets().size()) reject(fmt::format("compute set {} does not exist", e.set));
  }
  void visit_inside(const Copy& c) {
    if (c.set >= program_.copy_sets().size()) reject(fmt::format("copy set {} does not exist", c.set));
  }
  void visit_inside(const Repeat& r) {
    if (r.counter) check_control_variable(*r.counter);
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
    if (c.function >= program_.functions().size()) reject(fmt::format("function {} does not exist", c.function));
    visit(program_.functions()[c.function].body);
  }

  void check_control_variable(VariableId id) const {
    const Variable& v = variable(id, "control flow");
    if (v.type != Type::u32 || v.elements() != 1)
      reject(fmt::format("control variable '{}' is {} {} × {}; it must be one u32", v.name,
                         name_of(v.type), v.rows, v.cols));
  }

  const Program& program_;
  uint32_t tiles_;
  bool has_shared_space_;
  std::vector<State> states_;
};

}  // namespace

void verify(const Program& program, uint32_t tiles, bool has_shared_space) {
  Verifier(program, tiles, has_shared_space).verify();
}

}  // namespace tessera::program
