#include "program/conflicts.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "program/box_index.h"

namespace tessera::program {

void reject(const std::string& what) { throw Error("unsound tile program: " + what); }

std::string box_text(const Box& box) {
  return fmt::format("rows {}:{} × columns {}:{}", box.row, box.row_end(), box.col, box.col_end());
}

void TouchLog::check_and_clear(std::string_view where) {
  for (VariableId id : touched_) {
    if (!variables_[id].writes.boxes.empty()) check(where, id);
    variables_[id].reads.clear();
    variables_[id].writes.clear();
  }
  touched_.clear();
}

void TouchLog::check(std::string_view where, VariableId id) const {
  const Touches& writes = variables_[id].writes;
  const Touches& reads = variables_[id].reads;
  const BoxIndex index(writes.boxes);
  const auto fail = [&](const Box& common, std::string_view how) {
    reject(fmt::format("{}: {} of '{}' are {}", where, box_text(common), program_.variable(id).name, how));
  };
  const auto take_turns = [](const Owner& a, const Owner& b) {
    return a.number == b.number && a.round != b.round;
  };
  index.each_internal_overlap([&](uint32_t a, uint32_t b, const Box& common) {
    if (!take_turns(writes.owners[a], writes.owners[b])) fail(common, "written twice");
  });
  BoxIndex::Cursor cursor;
  for (uint32_t i = 0; i < reads.boxes.size(); ++i)
    index.each_overlap(reads.boxes[i], cursor, [&](uint32_t write, const Box& common) {
      if (take_turns(writes.owners[write], reads.owners[i])) return;
      if (writes.owners[write].number != reads.owners[i].number)
        fail(common, "written by one and read by another");
      if (writes.boxes[write] != reads.boxes[i] || writes.owners[write].place != reads.owners[i].place)
        fail(common, "updated in place through two different boxes");
    });
}

}  // namespace tessera::program
