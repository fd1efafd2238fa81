// Positions of the elements of an unstructured sparse matrix: the index that kernels read besides the values.
//
// The matrix is divided into chunks of consecutive rows, and each chunk into k-blocks of consecutive columns.
// In a k-block two rows form a *task*. It has *shared* steps, for columns that both rows have (a row of X is
// loaded once for two products), then *unpaired* steps, for one column of either row. Sixteen tasks of
// similar size form a *row group*, filled up to equal numbers of steps, with interleaved elements: lane t
// belongs to task t. So
//  - a kernel for many columns of X processes one task after another, with trip counts that repeat from task
//    to task, broadcasting values that lie sixteen apart; in each quarter of the lanes it skips the filler
//    after the longest task; and
//  - a kernel for a single column processes all sixteen tasks at once, one vector of values at a time.
// Filler is a zero whose column index is the width of the k-block: kernels keep a row of zeros after the rows
// of X there, so that filler adds nothing even if X holds infinity or NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/parallel.h"

namespace tessera::sparse {

/// Index words hold columns times this: the bytes of four elements of X, so that kernels find the rows of
/// panels of up to thirty-two columns by an address scaled by 1, 2, 4 or 8. Columns of a k-block fit 16 bits
/// with it.
inline constexpr uint32_t kColumnScale = 16;

/// Number of tasks in a row group.
inline constexpr uint32_t kRowGroupLanes = 16;

/// Number of tasks with a common number of steps, which a kernel for many columns processes at a time.
inline constexpr uint32_t kQuarterLanes = 4;
inline constexpr uint32_t kQuarters = kRowGroupLanes / kQuarterLanes;

/// Maximum number of columns of a k-block, and of rows of a chunk.
inline constexpr uint32_t kColumnBits = 12;
inline constexpr uint32_t kMaxKBlock = (1 << kColumnBits) - 1;
inline constexpr uint32_t kMaxChunkRows = 4096;

/// A word with two column indices of a k-block.
constexpr uint32_t pack_columns(uint32_t lower, uint32_t upper) {
  return kColumnScale * (lower | upper << 16);
}

/// The column in one half of a word; half 0 is the lower.
constexpr uint32_t column_in(uint32_t word, uint32_t half) {
  return (word >> 16 * half & 0xFFFF) / kColumnScale;
}

/// Sixteen tasks. Values: two times sixteen per step, first for rows a and then for rows b. Index words:
/// sixteen for two shared steps (the first step's column in the lower half), and sixteen for an unpaired step
/// (the column of row a in the lower half).
struct RowGroup {
  uint16_t row_a[kRowGroupLanes];  ///< row in the chunk; the chunk's number of rows if there is none
  uint16_t row_b[kRowGroupLanes];
  uint16_t shared_steps;  ///< even
  uint16_t unpaired_steps;
  uint16_t tasks;                     ///< up to 16; the lanes after them hold only filler
  uint16_t quarter_steps[kQuarters];  ///< unpaired steps of the longest of each four tasks, followed by
                                      ///< filler

  size_t value_count() const { return size_t{2} * kRowGroupLanes * (shared_steps + unpaired_steps); }
  size_t index_count() const { return size_t{kRowGroupLanes} * (shared_steps / 2 + unpaired_steps); }
};

/// Start of a chunk's k-block in the arrays of row groups, values and indices.
struct ElementBlock {
  uint64_t row_group = 0;
  uint64_t value = 0;
  uint64_t index = 0;
};

/// The index. Arrays may be longer than the part in use, whose end is blocks.back().
struct ElementIndex {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t k_block = 1;                            ///< columns of a k-block
  std::vector<uint32_t> chunk_begin = {0};         ///< first row of each chunk, and the number of rows
  std::vector<ElementBlock> blocks = {{0, 0, 0}};  ///< start of each k-block of each chunk, and the end
  base::BufferVector<RowGroup> row_groups;
  base::BufferVector<uint32_t> words;  ///< kColumnScale × column in its k-block, k_block for filler

  uint32_t k_blocks() const { return (cols + k_block - 1) / k_block; }
  uint32_t chunks() const { return static_cast<uint32_t>(chunk_begin.size()) - 1; }
  uint32_t rows_of(uint32_t chunk) const { return chunk_begin[chunk + 1] - chunk_begin[chunk]; }
  /// Number of value places in use, including filler.
  uint64_t value_count() const { return blocks.back().value; }
  size_t bytes() const;
};

/// The elements of one row in a k-block: one side of a lane of a row group. No steps: no elements.
struct ElementSlice {
  uint64_t value = 0;  ///< first place of the row group's values
  uint64_t word = 0;   ///< the row group's first index word
  uint16_t shared_steps = 0;
  uint16_t unpaired_steps = 0;
  uint8_t lane = 0;
  uint8_t side = 0;  ///< 0: row a, 1: row b

  uint64_t place(uint32_t step) const { return value + (2 * step + side) * kRowGroupLanes + lane; }
};

/// Calls visit(row in the chunk, slice) for each row with a lane in a block (chunk · k-blocks + k-block), and
/// before the rows of each row group enter(its position, the next row group or null).
template <class Enter, class Visit>
void for_each_slice(const ElementIndex& index, uint64_t block, const Enter& enter, const Visit& visit) {
  const auto chunk_rows = index.rows_of(static_cast<uint32_t>(block / index.k_blocks()));
  const uint64_t end = index.blocks[block + 1].row_group;
  for (ElementBlock at = index.blocks[block]; at.row_group < end; ++at.row_group) {
    const RowGroup& row_group = index.row_groups[at.row_group];
    enter(at, at.row_group + 1 < end ? &row_group + 1 : nullptr);
    for (uint32_t lane = 0; lane < row_group.tasks; ++lane)
      for (uint32_t side = 0; side < 2; ++side) {
        const uint16_t row = side == 0 ? row_group.row_a[lane] : row_group.row_b[lane];
        if (row == chunk_rows) continue;
        visit(row, ElementSlice{at.value, at.index, row_group.shared_steps, row_group.unpaired_steps,
                                static_cast<uint8_t>(lane), static_cast<uint8_t>(side)});
      }
    at.value += row_group.value_count();
    at.index += row_group.index_count();
  }
}

template <class Visit>
void for_each_slice(const ElementIndex& index, uint64_t block, const Visit& visit) {
  for_each_slice(
      index, block, [](const ElementBlock&, const RowGroup*) {}, visit);
}

/// The columns of a slice in its k-block; k_block for filler, which only follows behind elements.
class SliceColumns {
 public:
  SliceColumns(const ElementIndex& index, const ElementSlice& slice)
      : shared_(index.words.data() + slice.word + slice.lane),
        unpaired_(shared_ + size_t{slice.shared_steps / 2U} * kRowGroupLanes),
        side_(slice.side) {}

  uint32_t shared(uint32_t step) const {
    return column_in(shared_[step / 2 * size_t{kRowGroupLanes}], step % 2);
  }
  uint32_t unpaired(uint32_t step) const {
    return column_in(unpaired_[step * size_t{kRowGroupLanes}], side_);
  }

 private:
  const uint32_t* shared_;
  const uint32_t* unpaired_;
  uint32_t side_;
};

/// Calls visit(column in the k-block, place) for each step of a slice, shared steps first; the column of
/// filler is k_block.
template <class Visit>
void for_each_step(const ElementIndex& index, const ElementSlice& slice, const Visit& visit) {
  const SliceColumns columns(index, slice);
  for (uint32_t s = 0; s < slice.shared_steps; ++s) visit(columns.shared(s), slice.place(s));
  for (uint32_t s = 0; s < slice.unpaired_steps; ++s)
    visit(columns.unpaired(s), slice.place(slice.shared_steps + s));
}

/// Calls visit(column, place) for the elements of a slice, without filler. Continuing past the first filler
/// is faster than stopping there: rare filler is predicted well, the end of each row is not.
template <class Visit>
void for_each_element(const ElementIndex& index, const ElementSlice& slice, const Visit& visit) {
  for_each_step(index, slice, [&](uint32_t column, uint64_t place) {
    if (column != index.k_block) visit(column, place);
  });
}

/// Calls visit(column, place) for the elements of a slice in column order: shared and unpaired steps are each
/// ascending.
template <class Visit>
void for_each_in_order(const ElementIndex& index, const ElementSlice& slice, const Visit& visit) {
  const SliceColumns columns(index, slice);
  uint32_t s = 0, a = 0;
  while (true) {
    const uint32_t shared = s < slice.shared_steps ? columns.shared(s) : index.k_block;
    const uint32_t unpaired = a < slice.unpaired_steps ? columns.unpaired(a) : index.k_block;
    if (shared == index.k_block && unpaired == index.k_block) return;
    if (shared < unpaired)
      visit(shared, slice.place(s++));
    else
      visit(unpaired, slice.place(slice.shared_steps + a++));
  }
}

/// Finds the slices of a matrix by k-block and row.
class SliceTable {
 public:
  SliceTable(const ElementIndex& index, const base::ParallelFor& parallel);

  /// The slices of all rows in a k-block.
  const ElementSlice* k_block(uint32_t k_block) const { return &slices_[uint64_t{k_block} * rows_]; }

 private:
  uint32_t rows_;
  std::vector<ElementSlice> slices_;
};

/// Copies the row groups of each block to their positions: sets blocks and row groups, and resizes words if
/// needed. Words are not written.
void place_row_groups(const std::vector<std::vector<RowGroup>>& row_groups_of_block, ElementIndex& index,
                      const base::ParallelFor& parallel);

}  // namespace tessera::sparse
