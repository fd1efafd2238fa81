// Rectangular pieces of a variable, and series of them over the vertices of a group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera::program {

/// Rows [row, row + rows) × columns [col, col + cols) of a variable.
struct Box {
  uint32_t row = 0;
  uint32_t rows = 0;
  uint32_t col = 0;
  uint32_t cols = 0;

  bool empty() const { return rows == 0 || cols == 0; }
  uint64_t elements() const { return uint64_t{rows} * cols; }
  uint64_t row_end() const { return uint64_t{row} + rows; }
  uint64_t col_end() const { return uint64_t{col} + cols; }
  bool operator==(const Box&) const = default;
};

inline Box intersection(const Box& a, const Box& b) {
  const uint32_t row = std::max(a.row, b.row);
  const uint32_t col = std::max(a.col, b.col);
  const uint64_t row_end = std::min(a.row_end(), b.row_end());
  const uint64_t col_end = std::min(a.col_end(), b.col_end());
  if (row_end <= row || col_end <= col) return {};
  return {row, static_cast<uint32_t>(row_end - row), col, static_cast<uint32_t>(col_end - col)};
}

/// The same elements of the transposed variable.
inline Box transpose(const Box& box) { return {box.col, box.cols, box.row, box.rows}; }

/// The box that lies in `to` as `box` does in `from`.
inline Box corresponding(const Box& box, const Box& from, const Box& to) {
  return {to.row + (box.row - from.row), box.rows, to.col + (box.col - from.col), box.cols};
}

inline bool overlap(const Box& a, const Box& b) { return !intersection(a, b).empty(); }

inline bool contains(const Box& outer, const Box& inner) {
  return inner.empty() || intersection(outer, inner) == inner;
}

/// One box for each index of a series. Regular series take constant space: the box of index i = outer ·
/// inner_count + inner is the first box moved by outer and inner steps. Irregular series are a table.
class BoxSeries {
 public:
  struct Step {
    uint32_t row = 0;
    uint32_t col = 0;
  };

  BoxSeries() = default;

  /// The same box for every index.
  static BoxSeries same(Box box) { return grid(box, {}, 1, {}); }
  /// The box moves by `step` from each index to the next.
  static BoxSeries stepped(Box first, Step step) { return grid(first, step, 1, {}); }
  /// Box i is moved by i / inner_count outer steps and i % inner_count inner steps.
  static BoxSeries grid(Box first, Step outer, uint32_t inner_count, Step inner) {
    BoxSeries series;
    series.first_ = first;
    series.outer_ = outer;
    series.inner_count_ = inner_count;
    series.inner_ = inner;
    return series;
  }
  static BoxSeries table(std::vector<Box> boxes) {
    BoxSeries series;
    series.table_ = std::move(boxes);
    return series;
  }

  /// Box of one index, before clipping to its variable.
  Box at(uint32_t index) const {
    if (!table_.empty()) return table_.at(index);
    const uint32_t outer = index / inner_count_;
    const uint32_t inner = index % inner_count_;
    Box box = first_;
    box.row += outer * outer_.row + inner * inner_.row;
    box.col += outer * outer_.col + inner * inner_.col;
    return box;
  }

  const Box& first() const { return first_; }
  Step outer() const { return outer_; }
  Step inner() const { return inner_; }
  uint32_t inner_count() const { return inner_count_; }
  bool is_table() const { return !table_.empty(); }
  const std::vector<Box>& boxes() const { return table_; }

 private:
  Box first_;
  Step outer_;
  Step inner_;
  uint32_t inner_count_ = 1;
  std::vector<Box> table_;
};

}  // namespace tessera::program
