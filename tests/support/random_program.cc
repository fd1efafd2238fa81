#include "support/random_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/random.h"
#include "program/uses.h"
#include "support/toy_codelets.h"

namespace tessera::testing {
namespace {

using program::Access;
using program::Box;
using program::BoxSeries;
using program::Codelet;
using program::ComputeSet;
using program::CopyGroup;
using program::CopySet;
using program::Field;
using program::kShared;
using program::MappedBox;
using program::Param;
using program::Program;
using program::Role;
using program::RuntimeRow;
using program::StepId;
using program::TileId;
using program::Variable;
using program::VariableId;
using program::VertexGroup;

class Dice {
 public:
  explicit Dice(uint64_t seed) : sequence_(base::RandomStream(seed)) {}

  uint32_t below(uint32_t bound) { return sequence_.below(bound); }
  uint32_t between(uint32_t least, uint32_t most) { return least + below(most - least + 1); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[below(static_cast<uint32_t>(list.size()))];
  }
  Box box_within(const Box& outer) {
    const uint32_t rows = between(1, outer.rows);
    const uint32_t cols = between(1, outer.cols);
    return {outer.row + below(outer.rows - rows + 1), rows, outer.col + below(outer.cols - cols + 1), cols};
  }
  /// The box split into at most `parts` disjoint ones that cover it.
  std::vector<Box> split(const Box& whole, uint32_t parts) {
    std::vector<Box> boxes = {whole};
    for (uint32_t cuts = 1; cuts < parts; ++cuts) {
      Box& box = boxes[below(static_cast<uint32_t>(boxes.size()))];
      Box rest = box;
      if (box.rows > 1 && (box.cols == 1 || chance(50))) {
        box.rows = between(1, box.rows - 1);
        rest.row += box.rows;
        rest.rows -= box.rows;
      } else if (box.cols > 1) {
        box.cols = between(1, box.cols - 1);
        rest.col += box.cols;
        rest.cols -= box.cols;
      } else {
        continue;
      }
      boxes.push_back(rest);
    }
    return boxes;
  }

 private:
  base::RandomSequence sequence_;
};

/// A vertex or copy; touchers with one number and several turns run one after another.
struct Toucher {
  uint32_t number = 0;
  uint32_t turn = 0;
};

/// The writers and readers of each element, to find conflicts by brute force.
class ElementLog {
 public:
  explicit ElementLog(const Program& program) : program_(program) {}

  void read(VariableId v, const Box& box, Toucher owner) { note(v, box, owner, false); }
  void write(VariableId v, const Box& box, Toucher owner) { note(v, box, owner, true); }
  bool has_conflict() const { return conflict_; }

 private:
  struct Element {
    std::vector<Toucher> readers;
    std::vector<Toucher> writers;
  };

  static bool collide(const Toucher& writer, const Toucher& other, bool writes) {
    return writer.number != other.number || (writes && writer.turn == other.turn);
  }

  void note(VariableId v, const Box& box, Toucher owner, bool writes) {
    std::vector<Element>& elements = elements_[v];
    const Variable& variable = program_.variable(v);
    elements.resize(variable.elements());
    for (uint32_t r = box.row; r < box.row_end(); ++r)
      for (uint32_t c = box.col; c < box.col_end(); ++c) {
        Element& e = elements[uint64_t{r} * variable.cols + c];
        for (const Toucher& writer : e.writers) conflict_ |= collide(writer, owner, writes);
        if (writes)
          for (const Toucher& reader : e.readers) conflict_ |= collide(owner, reader, false);
        (writes ? e.writers : e.readers).push_back(owner);
      }
  }

  const Program& program_;
  std::map<VariableId, std::vector<Element>> elements_;
  bool conflict_ = false;
};

/// Whether all fields of the set that take a variable move by the same row.
bool move_together(const ComputeSet& set, const Field& field) {
  for (const VertexGroup& group : set.groups)
    for (const Field& other : group.fields)
      if (other.variable == field.variable && other.row != field.row) return false;
  return true;
}

/// Two fields of one vertex that share elements must be equal if one of them is written.
bool aliases_partly(const Program& program, const ComputeSet& set, const VertexGroup& group, uint32_t index) {
  for (size_t a = 0; a < group.fields.size(); ++a)
    for (size_t b = 0; b < group.fields.size(); ++b) {
      const Field& fa = group.fields[a];
      const Field& fb = group.fields[b];
      if (a == b || fa.variable != fb.variable || group.codelet->fields[a].access == Access::in) continue;
      Box box_a = field_box(program, fa, index);
      Box box_b = field_box(program, fb, index);
      const bool moves = !move_together(set, fa);
      if (moves) box_a.row = box_b.row = 0;
      if (moves) box_a.rows = box_b.rows = 1;
      if (overlap(box_a, box_b) && (moves || box_a != box_b)) return true;
    }
  return false;
}

void log_group(const Program& program, const ComputeSet& set, const VertexGroup& group, Toucher first,
               ElementLog& log) {
  for (uint32_t i = 0; i < group.count(); ++i)
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const Field& field = group.fields[f];
      Box box = field_box(program, field, i);
      if (!box.empty() && !move_together(set, field))
        box = {0, program.variable(field.variable).rows, box.col, box.cols};
      const Access access = group.codelet->fields[f].access;
      if (access != Access::out) log.read(field.variable, box, {first.number + i, first.turn});
      if (access != Access::in) log.write(field.variable, box, {first.number + i, first.turn});
    }
}

/// Whether a mapped box that the tile can access holds all of `box`, wherever it moves, at the alignment that
/// the codelet demands.
bool lies_on(const Program& program, const Field& field, const Box& box, TileId tile, uint32_t alignment) {
  const Variable& v = program.variable(field.variable);
  for (const MappedBox& mapped : v.mapping) {
    if (!contains(mapped.box, box) || (mapped.tile != kShared && mapped.tile != tile)) continue;
    const uint32_t at = (box.row - mapped.box.row) * mapped.box.cols + (box.col - mapped.box.col);
    const uint32_t by = field.row ? field.row->stride * mapped.box.cols : 0;
    if (mapped.tile == kShared || alignment <= 4 || (at * 4 % alignment == 0 && by * 4 % alignment == 0))
      return true;
  }
  return false;
}

/// Whether variables that one group writes and another touches lie wherever they are touched.
bool hands_on_in_place(const Program& program, const ComputeSet& set) {
  const auto is_handed_on = [&](VariableId v) {
    bool is_written = false;
    size_t touchers = 0;
    for (const VertexGroup& group : set.groups) {
      bool touches = false;
      for (size_t f = 0; f < group.fields.size(); ++f) {
        if (group.fields[f].variable != v) continue;
        touches = true;
        is_written |= group.codelet->fields[f].access != Access::in;
      }
      touchers += touches;
    }
    return is_written && touchers > 1;
  };
  for (const VertexGroup& group : set.groups)
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const Field& field = group.fields[f];
      if (!is_handed_on(field.variable)) continue;
      for (uint32_t i = 0; i < group.count(); ++i)
        if (const Box box = field_box(program, field, i); !box.empty())
          if (!lies_on(program, field, box, group.tile_of(i), group.codelet->fields[f].alignment))
            return false;
    }
  return true;
}

bool is_sound(const Program& program, const ComputeSet& set) {
  ElementLog log(program);
  Toucher first;
  for (const VertexGroup& group : set.groups) {
    log_group(program, set, group, first, log);
    if (set.ordered)
      ++first.turn;
    else
      first.number += group.count();
    for (uint32_t i = 0; i < group.count(); ++i)
      if (aliases_partly(program, set, group, i)) return false;
  }
  return !log.has_conflict() && (!set.ordered || hands_on_in_place(program, set));
}

bool is_sound(const Program& program, const CopySet& set) {
  ElementLog log(program);
  uint32_t owner = 0;
  const auto anywhere = [&](Box box, VariableId v, bool moves) {
    return moves ? Box{0, program.variable(v).rows, box.col, box.cols} : box;
  };
  for (const CopyGroup& group : set.groups)
    for (uint32_t i = 0; i < group.count; ++i) {
      const Box source = group.source.at(i);
      log.write(group.to, anywhere(group.target.at(i), group.to, group.target_offset.has_value()), {++owner});
      ++owner;
      if (!group.source_rows)
        log.read(group.from, anywhere(source, group.from, group.source_offset.has_value()), {owner});
      else
        for (uint32_t r = source.row; r < source.row_end(); ++r)
          log.read(group.from, {group.source_rows->at(r), 1, source.col, source.cols}, {owner});
    }
  return !log.has_conflict();
}

class Generator {
 public:
  Generator(uint64_t seed, const ProgramSpace& space) : dice_(seed), space_(space) {}

  Program program() {
    add_variables(dice_.between(4, 10));
    for (uint32_t f = dice_.below(4); f > 0; --f) add_function();
    ready_ = ready_at_start();
    std::vector<StepId> steps;
    for (uint32_t parts = dice_.between(1, 3); parts > 0; --parts) steps.push_back(block(3));
    for (VariableId v : numeric_)
      if (program_.variable(v).role == Role::output) make_ready(v, steps);
    if (!space_.has_shared_space && dice_.chance(40)) add_streamed(steps);
    program_.set_main(program_.sequence(std::move(steps)));
    return std::move(program_);
  }

  Program compute_set() {
    add_variables(dice_.between(1, 3));
    ComputeSet set{"set", program::Phase::compute, {}};
    set.ordered = dice_.chance(30);
    for (uint32_t g = dice_.between(1, 3); g > 0; --g) set.groups.push_back(random_group(set, nullptr));
    program_.set_main(program_.execute(std::move(set)));
    return std::move(program_);
  }

 private:
  struct Counter {
    VariableId variable = 0;
    uint32_t most = 0;
  };

  // Variables.

  TileId random_tile() { return dice_.below(space_.tiles); }
  TileId random_space() { return space_.has_shared_space && dice_.chance(60) ? kShared : random_tile(); }

  std::vector<MappedBox> random_mapping(uint32_t rows, uint32_t cols) {
    std::vector<MappedBox> mapping;
    switch (dice_.below(4)) {
      case 0: return program::map_to_tile(rows, cols, random_space());
      case 1: return program::map_linearly(rows, cols, space_.tiles);
      case 2:
        for (const Box& box : dice_.split({0, rows, 0, cols}, dice_.between(1, 6)))
          mapping.push_back({box, random_space()});
        return mapping;
      default:
        for (uint32_t col = 0; col < cols;) {
          const uint32_t width = dice_.between(1, cols - col);
          mapping.push_back({{0, rows, col, width}, random_space()});
          col += width;
        }
        return mapping;
    }
  }

  Role random_role() {
    const uint32_t x = dice_.below(100);
    return x < 50   ? Role::temporary
           : x < 60 ? Role::state
           : x < 72 ? Role::input
           : x < 84 ? Role::output
           : x < 94 ? Role::inout
                    : Role::constant;
  }

  void add_variables(uint32_t count) {
    add_variable("v0", Role::inout);
    for (uint32_t i = 1; i < count; ++i) add_variable(fmt::format("v{}", i));
  }

  void add_variable(std::string name, std::optional<Role> role = {}) {
    Variable v;
    v.name = std::move(name);
    v.type = dice_.chance(50) ? Type::f32 : Type::u32;
    v.rows = dice_.between(1, 9);
    v.cols = dice_.between(1, 9);
    v.role = role ? *role : random_role();
    v.mapping = random_mapping(v.rows, v.cols);
    if (v.role == Role::constant || (v.role == Role::state && dice_.chance(50)))
      v.contents = random_contents(v);
    numeric_.push_back(program_.add(std::move(v)));
  }

  std::shared_ptr<const std::byte> random_contents(const Variable& v) {
    std::shared_ptr<std::byte> bytes(new std::byte[v.bytes()], std::default_delete<std::byte[]>());
    for (uint64_t i = 0; i < v.elements(); ++i) {
      const uint32_t integer = dice_.below(50);
      const auto real = static_cast<float>(integer);
      std::memcpy(bytes.get() + i * 4, v.type == Type::f32 ? static_cast<const void*>(&real) : &integer, 4);
    }
    return bytes;
  }

  VariableId add_control() {
    return program_.add(variable(fmt::format("c{}", program_.variables().size()), Type::u32, 1, 1,
                                 Role::temporary, random_space()));
  }

  bool is_writable(VariableId v) const {
    const Role role = program_.variable(v).role;
    if (role == Role::argument) return access_of_.at(v) != Access::in;
    return role != Role::input && role != Role::constant;
  }

  std::vector<bool> ready_at_start() const {
    std::vector<bool> ready;
    for (const Variable& v : program_.variables())
      ready.push_back(v.role != Role::temporary && v.role != Role::output);
    for (const auto& [v, access] : access_of_) ready[v] = access != Access::out;
    return ready;
  }

  // Compute sets.

  void make_ready(VariableId v, std::vector<StepId>& steps) {
    if (ready_.at(v)) return;
    ready_[v] = true;
    const Variable& variable = program_.variable(v);
    const uint32_t rows = dice_.between(1, variable.rows);
    const uint32_t count = (variable.rows + rows - 1) / rows;
    VertexGroup group{&fill_codelet, 0, 1, count, {}, {int64_t{dice_.below(20)}}};
    group.first_tile = random_tile();
    group.fields.push_back({v, BoxSeries::stepped({0, rows, 0, variable.cols}, {rows, 0})});
    steps.push_back(program_.execute(
        {fmt::format("fill {}", variable.name), program::Phase::rearrange, {std::move(group)}}));
  }

  /// Boxes that overlap one another or not, inside the variable.
  BoxSeries any_series(VariableId v, uint32_t count) {
    const Box whole = program_.variable(v).whole();
    Box first = dice_.box_within(whole);
    if (count == 0 || dice_.chance(30)) return BoxSeries::same(first);
    if (dice_.chance(50)) {
      std::vector<Box> boxes(count);
      for (Box& box : boxes)
        if (dice_.chance(95)) box = dice_.box_within(whole);
      return BoxSeries::table(std::move(boxes));
    }
    // Regular ones may hang over the edge, where they are clipped.
    const uint32_t inner = dice_.between(1, count);
    const uint32_t outer = (count + inner - 1) / inner;
    first.row = dice_.below(2);
    first.col = dice_.below(2);
    const auto step = [&](uint32_t room, uint32_t steps) {
      return steps <= 1 ? dice_.below(3) : dice_.below(room / (steps - 1) + 1);
    };
    return BoxSeries::grid(first, {step(whole.rows - first.row, outer), 0}, inner,
                           {0, step(whole.cols - first.col, inner)});
  }

  /// Disjoint boxes: parts of a split, some of them empty, or bands of rows.
  BoxSeries disjoint_series(VariableId v, uint32_t count) {
    const Variable& variable = program_.variable(v);
    const uint32_t band = (variable.rows + count - 1) / count;
    if (dice_.chance(40) && (count - 1) * band <= variable.rows)
      return BoxSeries::stepped({0, band, 0, variable.cols}, {band, 0});
    std::vector<Box> boxes = dice_.split(variable.whole(), count);
    boxes.resize(count);
    for (Box& box : boxes)
      if (!box.empty() && dice_.chance(30)) box = dice_.box_within(box);
    return BoxSeries::table(std::move(boxes));
  }

  VariableId pick_of_type(Type type) {
    std::vector<VariableId> fitting;
    for (VariableId v : numeric_)
      if (program_.variable(v).type == type) fitting.push_back(v);
    return dice_.pick(fitting);
  }

  VariableId pick_writable() {
    std::vector<VariableId> fitting;
    std::copy_if(numeric_.begin(), numeric_.end(), std::back_inserter(fitting),
                 [&](VariableId v) { return is_writable(v); });
    return dice_.pick(fitting);
  }

  /// Takes a run-time row now and then, if there are `steps` that can set it.
  VertexGroup random_group(const ComputeSet& set, std::vector<StepId>* steps) {
    static const std::vector<const Codelet*> kCodelets = {&add_codelet, &subtract_codelet,   &scale_codelet,
                                                          &sum_codelet, &accumulate_codelet, &gather_codelet,
                                                          &fill_codelet};
    VertexGroup group;
    group.codelet = dice_.pick(kCodelets);
    const VariableId y = pick_writable();
    const bool can_gather = std::any_of(numeric_.begin(), numeric_.end(),
                                        [&](VariableId v) { return program_.variable(v).type == Type::u32; });
    if (group.codelet == &gather_codelet && !can_gather) group.codelet = &add_codelet;
    group.first_tile = random_tile();
    group.tiles = dice_.between(1, space_.tiles - group.first_tile);
    group.per_tile = dice_.between(1, 3);
    const VertexGroup* before = set.ordered && !set.groups.empty() ? &dice_.pick(set.groups) : nullptr;
    if (before != nullptr) {
      group.first_tile = before->first_tile;
      group.tiles = before->tiles;
      group.per_tile = before->per_tile;
    }
    const Field target = moved({y, disjoint_series(y, group.count())}, group.count(), steps);
    for (const program::FieldSpec& spec : group.codelet->fields) {
      if (spec.access != Access::in || dice_.chance(15)) {
        group.fields.push_back(
            spec.name == "rows" ? Field{pick_of_type(Type::u32), BoxSeries::same({0, 1, 0, 1})} : target);
        continue;
      }
      const VariableId x = pick_of_type(spec.name == "rows" ? Type::u32 : program_.variable(y).type);
      if (before != nullptr && dice_.chance(60))
        group.fields.push_back(dice_.pick(before->fields));
      else
        group.fields.push_back(moved({x, any_series(x, group.count())}, group.count(), steps));
      if (program_.variable(group.fields.back().variable).type != program_.variable(x).type)
        group.fields.back() = {x, any_series(x, group.count())};
    }
    for (size_t p = 0; p < group.codelet->params.size(); ++p)
      group.params.push_back(random_param(group.count()));
    return group;
  }

  Field moved(Field field, uint32_t count, std::vector<StepId>* steps) {
    const Variable v = program_.variable(field.variable);  // copies: controls are added below
    if (steps != nullptr && dice_.chance(25)) field.row = runtime_row(v, field.boxes, count, *steps);
    return field;
  }

  Param random_param(uint32_t count) {
    if (dice_.chance(50)) return int64_t{dice_.below(4)};
    std::vector<int64_t> each(count);
    for (int64_t& x : each) x = dice_.below(4);
    return each;
  }

  void add_execute(std::vector<StepId>& steps) {
    ComputeSet set{fmt::format("compute {}", program_.compute_sets().size()), program::Phase::compute, {}};
    set.ordered = dice_.chance(30);
    for (uint32_t tries = dice_.between(1, 4); tries > 0; --tries) {
      set.groups.push_back(random_group(set, &steps));
      if (!is_sound(program_, set)) set.groups.pop_back();
    }
    for (const VertexGroup& group : set.groups)
      for (const Field& f : group.fields) make_ready(f.variable, steps);
    set.ordered = set.ordered && !set.groups.empty();
    steps.push_back(program_.execute(std::move(set)));
  }

  // Copies.

  /// Leaves a variable in streaming memory, or takes one that an earlier run left there, and brings it back
  /// after other steps.
  void add_streamed(std::vector<StepId>& steps) {
    const VariableId v = pick_writable();
    Variable beside = program_.variable(v);
    beside.name = "beside";
    beside.role = dice_.chance(50) ? Role::state : Role::temporary;
    beside.contents = nullptr;
    beside.streaming = true;
    const Box all = beside.whole();
    const bool begins_with_state = beside.role == Role::state && dice_.chance(50);
    const VariableId s = program_.add(std::move(beside));
    const auto copy = [&](VariableId from, VariableId to) {
      return program_.copy(
          {"stream", {{from, to, 1, BoxSeries::table({all}), BoxSeries::table({all}), {}, {}, {}}}});
    };
    make_ready(v, steps);
    if (!begins_with_state) steps.push_back(copy(v, s));
    const StepId work = block(2);
    const program::Uses touched = program::UsesOfSteps(program_).all_of(work);
    const StepId back = copy(s, v);
    if (touched.contains(v) || touched.contains(s)) {
      steps.push_back(work);
      steps.push_back(back);
    } else {
      const auto set = static_cast<program::CopySetId>(program_.copy_sets().size() - 1);
      steps.push_back(program_.add(program::Step{program::Copy{set, work}}));
    }
    if (begins_with_state) {
      steps.push_back(block(1));
      steps.push_back(copy(v, s));
    }
  }

  void add_copy(std::vector<StepId>& steps) {
    CopySet set{fmt::format("copy {}", program_.copy_sets().size()), {}};
    for (uint32_t tries = dice_.between(1, 4); tries > 0; --tries) {
      set.groups.push_back(random_copy(steps));
      if (!is_sound(program_, set)) set.groups.pop_back();
    }
    for (const CopyGroup& group : set.groups) {
      make_ready(group.from, steps);
      make_ready(group.to, steps);
    }
    steps.push_back(program_.copy(std::move(set)));
  }

  CopyGroup random_copy(std::vector<StepId>& steps) {
    CopyGroup group;
    group.to = pick_writable();
    group.from = pick_of_type(program_.variable(group.to).type);
    const Variable from = program_.variable(group.from);  // copies: controls are added below
    const Variable to = program_.variable(group.to);
    uint32_t source_rows = from.rows;
    if (dice_.chance(30)) {
      auto list = std::make_shared<std::vector<uint32_t>>(dice_.between(1, 12));
      for (uint32_t& row : *list) row = dice_.below(from.rows);
      if (dice_.chance(30)) std::sort(list->begin(), list->end());
      source_rows = static_cast<uint32_t>(list->size());
      group.source_rows = std::move(list);
    }
    const Box shape = dice_.box_within({0, std::min(source_rows, to.rows), 0, std::min(from.cols, to.cols)});
    group.count = dice_.between(1, 3);
    const auto series = [&](uint32_t rows, uint32_t cols) {
      if (dice_.chance(50) && uint64_t{shape.rows} * group.count <= rows)
        return BoxSeries::stepped({0, shape.rows, dice_.below(cols - shape.cols + 1), shape.cols},
                                  {shape.rows, 0});
      std::vector<Box> boxes;
      for (uint32_t i = 0; i < group.count; ++i)
        boxes.push_back(
            {dice_.below(rows - shape.rows + 1), shape.rows, dice_.below(cols - shape.cols + 1), shape.cols});
      return BoxSeries::table(std::move(boxes));
    };
    group.source = series(source_rows, from.cols);
    group.target = series(to.rows, to.cols);
    if (!group.source_rows) group.source_offset = runtime_row(from, group.source, group.count, steps);
    group.target_offset = runtime_row(to, group.target, group.count, steps);
    return group;
  }

  /// An index that stays within the variable, where its mapping allows one.
  std::optional<RuntimeRow> runtime_row(const Variable& v, const BoxSeries& boxes, uint32_t count,
                                        std::vector<StepId>& steps) {
    const bool whole_columns = std::all_of(v.mapping.begin(), v.mapping.end(),
                                           [&](const MappedBox& m) { return m.box.rows == v.rows; });
    if (!whole_columns || dice_.chance(40)) return std::nullopt;
    uint64_t lowest = 0;
    for (uint32_t i = 0; i < count; ++i)
      lowest = std::max(lowest, intersection(boxes.at(i), v.whole()).row_end());
    const auto room = static_cast<uint32_t>(v.rows - lowest);
    if (!counters_.empty() && dice_.chance(70)) {
      const Counter counter = dice_.pick(counters_);
      return RuntimeRow{counter.variable, dice_.below(room / std::max(counter.most, 1U) + 1)};
    }
    const uint32_t value = dice_.below(room + 1);
    const VariableId index = set_control(value, steps);
    return RuntimeRow{index, value == 0 ? 7 : dice_.between(1, room / value)};
  }

  // Control flow.

  VariableId set_control(uint32_t value, std::vector<StepId>& steps) {
    const VariableId control = add_control();
    steps.push_back(testing::execute(program_, fill_codelet, {control}, {int64_t{value}}, random_tile()));
    return control;
  }

  StepId vertex_step(const Codelet& codelet, std::vector<Field> fields, int64_t param) {
    const size_t params = codelet.params.size();
    return program_.execute(
        {std::string(codelet.name),
         program::Phase::compute,
         {vertex(codelet, random_tile(), std::move(fields), std::vector<Param>(params, param))}});
  }

  StepId block(uint32_t depth) {
    std::vector<StepId> steps;
    for (uint32_t items = dice_.between(1, 4); items > 0; --items) add_item(depth, steps);
    return program_.sequence(std::move(steps));
  }

  /// A block whose newly ready variables are not relied on afterwards.
  StepId nested_block(uint32_t depth) {
    const std::vector<bool> before = ready_;
    const StepId id = block(depth - 1);
    ready_ = before;
    ready_.resize(program_.variables().size(), true);
    return id;
  }

  void add_item(uint32_t depth, std::vector<StepId>& steps) {
    ready_.resize(program_.variables().size(), true);  // controls are set where they are made
    const uint32_t x = dice_.below(100);
    if (x < 45 || (depth == 0 && x < 70)) return add_execute(steps);
    if (x < 70 || depth == 0) return add_copy(steps);
    if (x < 78) return add_repeat(depth, steps);
    if (x < 84) return add_while(depth, steps);
    if (x < 89) return add_if(depth, steps);
    if (functions_ != 0) add_call(dice_.below(functions_), steps);
  }

  /// Unless nothing could be passed. Variables that a call overwrites as a whole have no contents before.
  void add_call(program::FunctionId id, std::vector<StepId>& steps) {
    program::Call call{id, {}};
    const std::vector<program::Argument>& arguments = program_.functions()[id].arguments;
    while (call.operands.size() < arguments.size()) {
      const auto operand = random_operand(arguments, call.operands);
      if (!operand) return;
      call.operands.push_back(*operand);
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto& [v, box] = call.operands[i];
      const bool is_overwritten = arguments[i].access == Access::out && box == program_.variable(v).whole();
      if (!is_overwritten) make_ready(v, steps);
      ready_[v] = true;
    }
    steps.push_back(program_.add(program::Step{std::move(call)}));
  }

  /// A box of a variable that functions do not touch themselves. A call passes the boxes that it writes only
  /// once.
  std::optional<program::CallOperand> random_operand(const std::vector<program::Argument>& arguments,
                                                     const std::vector<program::CallOperand>& before) {
    const program::Argument& argument = arguments[before.size()];
    const Variable& wanted = program_.variable(argument.variable);
    const auto is_free = [&](const program::CallOperand& operand) {
      for (size_t i = 0; i < before.size(); ++i)
        if (before[i].variable == operand.variable && overlap(before[i].box, operand.box) &&
            (arguments[i].access != Access::in || argument.access != Access::in))
          return false;
      return true;
    };
    std::vector<program::CallOperand> fitting;
    for (VariableId v : passed_) {
      const Variable& has = program_.variable(v);
      const bool lies_right = wanted.is_shared()
                                  ? has.is_shared() && has.rows >= wanted.rows && has.cols >= wanted.cols
                                  : has.mapping == wanted.mapping;
      if (has.type != wanted.type || !lies_right || (argument.access != Access::in && !is_writable(v)))
        continue;
      const uint32_t row = dice_.below(has.rows - wanted.rows + 1),
                     col = dice_.below(has.cols - wanted.cols + 1);
      const program::CallOperand operand{v, {row, wanted.rows, col, wanted.cols}};
      if (is_free(operand)) fitting.push_back(operand);
    }
    if (fitting.empty()) return std::nullopt;
    return dice_.pick(fitting);
  }

  void add_repeat(uint32_t depth, std::vector<StepId>& steps) {
    const uint32_t count = dice_.below(4);
    if (dice_.chance(40)) {
      steps.push_back(program_.repeat(count, nested_block(depth)));
      return;
    }
    const VariableId counter = add_control();
    counters_.push_back({counter, count == 0 ? 0 : count - 1});
    const StepId body = nested_block(depth);
    counters_.pop_back();
    steps.push_back(program_.repeat(count, body, counter));
  }

  void add_while(uint32_t depth, std::vector<StepId>& steps) {
    const VariableId counter = set_control(0, steps);
    const VariableId flag = add_control();
    const Box one{0, 1, 0, 1};
    const uint32_t limit = dice_.below(4);
    const StepId test = vertex_step(below_codelet, {field(counter, one), field(flag, one)}, limit);
    counters_.push_back({counter, limit == 0 ? 0 : limit - 1});
    const StepId body = nested_block(depth);
    counters_.pop_back();
    const StepId next = vertex_step(increment_codelet, {field(counter, one)}, 1);
    steps.push_back(program_.add(program::Step{program::While{test, flag, program_.sequence({body, next})}}));
  }

  void add_if(uint32_t depth, std::vector<StepId>& steps) {
    const VariableId x = dice_.pick(numeric_);
    make_ready(x, steps);
    const VariableId flag = add_control();
    steps.push_back(vertex_step(
        odd_codelet, {field(x, dice_.box_within(program_.variable(x).whole())), field(flag, {0, 1, 0, 1})},
        0));
    const StepId then = dice_.chance(90) ? nested_block(depth) : program::kNoStep;
    const StepId otherwise = dice_.chance(60) ? nested_block(depth) : program::kNoStep;
    steps.push_back(program_.add(program::Step{program::If{flag, then, otherwise}}));
  }

  /// A function touches its arguments, its own temporaries and every other variable; a call passes the rest,
  /// or arguments. It may write its results at its beginning, at its end or in between.
  void add_function() {
    const std::vector<VariableId> all = numeric_;
    std::erase_if(numeric_, [](VariableId v) { return v % 2 == 1; });
    passed_.clear();
    program::Function function{fmt::format("f{}", functions_), program::kNoStep, {}};
    for (uint32_t i = dice_.below(4); i > 0; --i)
      if (const auto argument = random_argument(all)) function.arguments.push_back(*argument);
    for (uint32_t i = dice_.below(3); i > 0; --i)
      add_variable(fmt::format("t{}", program_.variables().size()), Role::temporary);
    ready_ = ready_at_start();
    std::vector<StepId> steps;
    for (VariableId v : passed_)
      if (dice_.chance(30)) make_ready(v, steps);
    for (uint32_t blocks = dice_.between(1, 3); blocks > 0; --blocks) steps.push_back(block(1));
    for (VariableId v : passed_) make_ready(v, steps);
    function.body = program_.sequence(std::move(steps));
    program_.add(std::move(function));
    ++functions_;
    numeric_ = all;
    passed_.clear();
    for (VariableId v : numeric_)
      if (v % 2 == 1) passed_.push_back(v);
  }

  bool is_on_tiles(const Variable& v) const {
    return std::ranges::count(v.mapping, kShared, &MappedBox::tile) == 0;
  }

  /// In the shared space, or on tiles as one of the variables that calls may pass.
  std::optional<program::Argument> random_argument(const std::vector<VariableId>& all) {
    Variable made =
        variable(fmt::format("a{}", program_.variables().size()), dice_.chance(50) ? Type::f32 : Type::u32,
                 dice_.between(1, 3), dice_.between(1, 3), Role::argument);
    if (!space_.has_shared_space || dice_.chance(40)) {
      std::vector<VariableId> on_tiles;
      for (VariableId v : all)
        if (v % 2 == 1 && is_on_tiles(program_.variable(v))) on_tiles.push_back(v);
      if (on_tiles.empty()) return std::nullopt;
      const Variable& like = program_.variable(dice_.pick(on_tiles));
      made.type = like.type;
      made.rows = like.rows;
      made.cols = like.cols;
      made.mapping = like.mapping;
    }
    const VariableId v = program_.add(std::move(made));
    const Access access = dice_.pick(std::vector{Access::in, Access::out, Access::inout});
    access_of_[v] = access;
    numeric_.push_back(v);
    passed_.push_back(v);
    return program::Argument{v, access};
  }

  Dice dice_;
  ProgramSpace space_;
  Program program_;
  std::vector<VariableId> numeric_;
  std::vector<bool> ready_;
  std::vector<Counter> counters_;
  uint32_t functions_ = 0;
  std::map<VariableId, Access> access_of_;  ///< of arguments
  std::vector<VariableId> passed_;          ///< variables that calls may pass
};

}  // namespace

Program random_program(uint64_t seed, const ProgramSpace& space) { return Generator(seed, space).program(); }

Program random_compute_set(uint64_t seed, const ProgramSpace& space) {
  return Generator(seed, space).compute_set();
}

bool has_conflict(const Program& program) { return !is_sound(program, program.compute_sets().at(0)); }

}  // namespace tessera::testing
