// Finds the mapped boxes that hold boxes of variables.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "program/box_index.h"
#include "program/program.h"

namespace tessera::program {

/// The mapped boxes of all variables of a program, by their positions in Variable::mapping.
class MappingIndex {
 public:
  explicit MappingIndex(const Program& program) : program_(program) {
    std::vector<Box> boxes;
    for (const Variable& variable : program.variables()) {
      boxes.clear();
      for (const MappedBox& mapped : variable.mapping) boxes.push_back(mapped.box);
      by_variable_.push_back({BoxIndex(boxes), {}});
    }
  }

  /// A mapped box that `tile` can access and that contains all of `box`, at the alignment that a codelet
  /// requires, for every value of its run-time row. The program determines where boxes begin, in units of
  /// words.
  std::optional<uint32_t> resident(VariableId id, const Box& box, TileId tile, uint32_t alignment,
                                   const std::optional<RuntimeRow>& row = {}) {
    const Variable& variable = program_.variable(id);
    if (alignment <= kWordBytes) alignment = 1;
    std::optional<uint32_t> found;
    each_overlap(id, {box.row, 1, box.col, 1}, [&](uint32_t i, const Box&) {
      const auto& [home, home_tile] = variable.mapping[i];
      const auto is_aligned = [&](uint64_t elements) {
        return elements * size_of(variable.type) % alignment == 0;
      };
      const uint64_t first = uint64_t{box.row - home.row} * home.cols + (box.col - home.col);
      if ((home_tile == kShared || (home_tile == tile && is_aligned(first) &&
                                    is_aligned(row ? uint64_t{row->stride} * home.cols : 0))) &&
          contains(home, box))
        found = i;
    });
    return found;
  }

  /// Calls visit(position, common part) for every mapped box that overlaps `box`.
  template <class Visit>
  void each_overlap(VariableId id, const Box& box, const Visit& visit) {
    OfVariable& v = by_variable_[id];
    v.index.each_overlap(box, v.cursor, visit);
  }

 private:
  static constexpr uint32_t kWordBytes = 4;

  struct OfVariable {
    BoxIndex index;
    BoxIndex::Cursor cursor;
  };

  const Program& program_;
  std::vector<OfVariable> by_variable_;
};

}  // namespace tessera::program
