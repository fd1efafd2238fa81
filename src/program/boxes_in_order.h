// Lists of boxes that show by their order that no two overlap.
#pragma once

#include <algorithm>
#include <cstdint>

#include "program/box.h"

namespace tessera::program {

/// Boxes that come line by line: each box lies in the rows of the one before, beside all boxes of that line,
/// or in rows that no other line has; or the same with columns and rows exchanged. Copies between tilings of
/// a variable come in this order, in either direction.
class BoxesInOrder {
 public:
  /// Adds a box that is not empty. False, from the first such box on, if it may overlap another one.
  bool add(const Box& box) {
    const Extent rows{box.row, static_cast<uint32_t>(box.row_end())};
    const Extent cols{box.col, static_cast<uint32_t>(box.col_end())};
    is_by_rows_ = is_by_rows_ && by_rows_.add(rows, cols);
    is_by_cols_ = is_by_cols_ && by_cols_.add(cols, rows);
    return is_by_rows_ || is_by_cols_;
  }

 private:
  struct Extent {
    uint32_t begin = 0;
    uint32_t end = 0;

    bool operator==(const Extent&) const = default;
    bool meets(const Extent& other) const { return begin < other.end && other.begin < end; }
    void cover(const Extent& other) {
      begin = begin == end ? other.begin : std::min(begin, other.begin);
      end = std::max(end, other.end);
    }
  };

  /// A line consists of boxes of equal extent along one axis. A finished line cannot be continued, as it
  /// overlaps the extent that all lines cover.
  class Lines {
   public:
    bool add(const Extent& line, const Extent& across) {
      if (line == line_) {
        if (across_.meets(across)) return false;
        across_.cover(across);
        return true;
      }
      if (all_.meets(line)) return false;
      all_.cover(line);
      line_ = line;
      across_ = across;
      return true;
    }

   private:
    Extent all_;     ///< of all lines
    Extent line_;    ///< of the present one
    Extent across_;  ///< of the present one's boxes
  };

  Lines by_rows_, by_cols_;
  bool is_by_rows_ = true, is_by_cols_ = true;
};

}  // namespace tessera::program
