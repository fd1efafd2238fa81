#include "engine/touches.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

namespace tessera::engine {
namespace {

using program::Box;
using program::VariableId;

/// More boxes than this are replaced by the box around them.
constexpr size_t kMostBoxes = 64;

/// Joins boxes on the same rows that overlap or lie side by side.
void join_on_rows(std::vector<Box>& boxes) {
  std::ranges::sort(boxes, {}, [](const Box& b) { return std::tuple(b.row, b.rows, b.col, b.cols); });
  std::vector<Box> joined;
  for (const Box& box : boxes) {
    Box* last = joined.empty() ? nullptr : &joined.back();
    if (last != nullptr && last->row == box.row && last->rows == box.rows && box.col <= last->col_end())
      last->cols = static_cast<uint32_t>(std::max(last->col_end(), box.col_end()) - last->col);
    else
      joined.push_back(box);
  }
  boxes = std::move(joined);
}

/// Fewer boxes of the same elements.
std::vector<Box> fewer(std::vector<Box> boxes) {
  const auto turn = [&] {
    for (Box& box : boxes) box = transpose(box);
  };
  join_on_rows(boxes);
  turn();
  join_on_rows(boxes);
  turn();
  return boxes;
}

Box box_around(const std::vector<Box>& boxes) {
  uint64_t row = ~uint64_t{0}, col = row, row_end = 0, col_end = 0;
  for (const Box& box : boxes) {
    row = std::min<uint64_t>(row, box.row);
    col = std::min<uint64_t>(col, box.col);
    row_end = std::max(row_end, box.row_end());
    col_end = std::max(col_end, box.col_end());
  }
  return {static_cast<uint32_t>(row), static_cast<uint32_t>(row_end - row), static_cast<uint32_t>(col),
          static_cast<uint32_t>(col_end - col)};
}

/// The touches of one step.
class TouchSearch {
 public:
  explicit TouchSearch(const program::Program& program) : program_(program) {}

  void add(VariableId variable, const Box& box, bool reads, bool writes) {
    if (box.empty()) return;
    Boxes& boxes = by_variable_[variable];
    if (reads) boxes.read.push_back(box);
    if (writes) boxes.written.push_back(box);
  }
  /// Adds a touch at rows that are known only in a run, from `box` on.
  void add_moved(VariableId variable, const program::RuntimeRow& row, const Box& box, bool writes) {
    if (!box.empty()) add(variable, program_.variable(variable).whole(), true, writes);
    add(row.index, program_.variable(row.index).whole(), true, false);
  }

  std::vector<Touch> found() {
    std::vector<Touch> touches;
    for (auto& [variable, boxes] : by_variable_) {
      bool reads_rest = false;
      for (const Box& box : limited(std::move(boxes.written), reads_rest))
        touches.push_back({variable, box, reads_rest, true});
      bool ignored = false;
      for (const Box& box : limited(std::move(boxes.read), ignored))
        touches.push_back({variable, box, true, false});
    }
    return touches;
  }

 private:
  struct Boxes {
    std::vector<Box> read, written;
  };

  static std::vector<Box> limited(std::vector<Box> boxes, bool& has_rest) {
    boxes = fewer(std::move(boxes));
    has_rest = boxes.size() > kMostBoxes;
    if (has_rest) boxes = {box_around(boxes)};
    return boxes;
  }

  const program::Program& program_;
  std::map<VariableId, Boxes> by_variable_;
};

std::vector<Touch> touches_of(const program::Program& program, const program::ComputeSet& set) {
  TouchSearch search(program);
  for (const program::VertexGroup& group : set.groups)
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const program::Field& field = group.fields[f];
      const program::FieldSpec& spec = group.codelet->fields[f];
      if (spec.scratch) continue;
      for (uint32_t i = 0; i < group.count(); ++i) {
        const Box box = field_box(program, field, i);
        if (!field.row) {
          search.add(field.variable, box, reads(spec.access) || spec.scattered, writes(spec.access));
          continue;
        }
        search.add_moved(field.variable, *field.row, box, writes(spec.access));
        if (!box.empty()) break;  // all of them count as the whole variable
      }
    }
  return search.found();
}

std::vector<Touch> touches_of(const program::Program& program, const program::CopySet& set) {
  TouchSearch search(program);
  for (const program::CopyGroup& group : set.groups) {
    const Box from = program.variable(group.from).whole(), to = program.variable(group.to).whole();
    if (group.source_rows) search.add(group.from, from, true, false);
    if (group.source_offset) search.add_moved(group.from, *group.source_offset, from, false);
    if (group.target_offset) search.add_moved(group.to, *group.target_offset, to, true);
    for (uint32_t i = 0; i < group.count; ++i) {
      if (!group.source_rows && !group.source_offset)
        search.add(group.from, intersection(group.source.at(i), from), true, false);
      if (!group.target_offset) search.add(group.to, intersection(group.target.at(i), to), false, true);
    }
  }
  return search.found();
}

}  // namespace

std::span<const Touch> Touches::of(const program::Execute& execute) {
  std::optional<std::vector<Touch>>& known = sets_[execute.set];
  if (!known) known = touches_of(program_, program_.compute_sets()[execute.set]);
  return *known;
}

std::span<const Touch> Touches::of(const program::Copy& copy) {
  std::optional<std::vector<Touch>>& known = copies_[copy.set];
  if (!known) known = touches_of(program_, program_.copy_sets()[copy.set]);
  return *known;
}

std::vector<Touch> passed_by(const program::Program& program, const program::Call& call) {
  const std::vector<program::Argument>& arguments = program.functions()[call.function].arguments;
  std::vector<Touch> passed;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (reads(arguments[i].access) && !call.operands[i].box.empty())
      passed.push_back({call.operands[i].variable, call.operands[i].box, true, false});
  return passed;
}

void PartWalk::walk(program::StepId id) {
  if (id == program::kNoStep) return;
  present_ = part_within(program_, id, called_);
  std::visit([this](const auto& step) { walk_inside(step); }, program_.steps()[id]);
}

void PartWalk::walk_inside(const program::Sequence& sequence) {
  for (const program::StepId step : sequence.steps) walk(step);
}

void PartWalk::walk_inside(const program::Execute& execute) { touch(touches_.of(execute), present_); }

void PartWalk::walk_inside(const program::Copy& copy) {
  const uint32_t part = present_;
  walk(copy.beside);
  touch(touches_.of(copy), part);
}

void PartWalk::walk_inside(const program::Collect& collect) {
  this->collect(program_.collectives()[collect.collective]);
  walk(collect.beside);
}

void PartWalk::walk_inside(const program::Repeat& repeat) {
  for (uint32_t i = 0; i < times(repeat); ++i) {
    if (repeat.counter) touch_everywhere(*repeat.counter, true);
    walk(repeat.body);
  }
}

void PartWalk::walk_inside(const program::While& loop) {
  walk(loop.test);
  touch_everywhere(loop.condition, false);
  if (follows_conditions()) walk(loop.body);
}

void PartWalk::walk_inside(const program::If& branch) {
  touch_everywhere(branch.condition, false);
  if (!follows_conditions()) return;
  walk(branch.then);
  walk(branch.otherwise);
}

void PartWalk::walk_inside(const program::Call& call) {
  const uint32_t around = std::exchange(called_, present_);
  pass(call, called_);
  walk(program_.functions()[call.function].body);
  called_ = around;
}

void PartWalk::touch_everywhere(VariableId variable, bool writes) {
  const Touch touched{variable, program_.variable(variable).whole(), !writes, writes};
  touch({&touched, 1}, program::kEveryPart);
}

}  // namespace tessera::engine
