// Dropping blocks from an index and growing new ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparse/blocks/block_index.h"

namespace tessera::sparse {

struct BlockEdit {
  uint32_t row : 31 = 0;
  uint32_t grows : 1 = 0;
  uint32_t col = 0;
  uint32_t slot = 0;
  uint32_t at = 0;  ///< position in the index of the row's first block with this or a larger column
};

/// Dropped and grown blocks, by block row.
struct Exchange {
  std::span<const BlockPosition> drop, grow;

  size_t size() const { return drop.size() + grow.size(); }
};

/// The edits of consecutive rows, by row, then by column, drops before grows.
struct RowEdits {
  uint32_t first_row = 0;
  std::vector<uint32_t> row_begin = {0};  ///< first edit of each row, and their number
  std::vector<BlockEdit> edits;

  uint32_t end_row() const { return first_row + static_cast<uint32_t>(row_begin.size()) - 1; }
  std::span<const BlockEdit> of(uint32_t row) const {
    const uint32_t* begin = &row_begin[row - first_row];
    return {edits.data() + begin[0], edits.data() + begin[1]};
  }
};

/// The edits of [begin, end) within an exchange, in any order, not yet located.
RowEdits edits_of_rows(const Exchange& exchange, uint32_t begin, uint32_t end);

/// The edits of rows [begin, end), from edits of the transposed index, given by parts.
RowEdits edits_of_rows(std::span<const RowEdits> transposed, uint32_t begin, uint32_t end);

/// Finds the positions of edits.
void locate(const BlockIndex& index, std::span<BlockEdit> edits);

/// Space for changed rows before they replace the present ones, whose arrays stay.
struct SpareIndex {
  std::vector<uint32_t> row_begin;
  std::vector<uint32_t> slots;
  std::vector<std::byte> columns;

  uint64_t bytes() const { return (row_begin.size() + slots.size()) * sizeof(uint32_t) + columns.size(); }
};

/// Applies edits to an index, part by part of its rows. Besides the edits it costs two copies of the index.
class Splice {
 public:
  /// Divides all rows into `parts` parts, with at most `most_grown` new blocks.
  Splice(BlockIndex& index, SpareIndex& spare, uint32_t parts, uint64_t most_grown);

  /// Assembles the rows of a part from located edits, without changing the index. Grown blocks get their new
  /// position in the part as `at`. Parts may be prepared concurrently.
  void prepare(uint32_t part, RowEdits& edits);

  /// Sets the slot of a block that has grown in a prepared part.
  void set_slot(uint32_t part, const BlockEdit& edit) { spare_.slots[begin_of(part) + edit.at] = edit.slot; }

  /// Moves a part into the index, after all are prepared.
  void finish(uint32_t part);

 private:
  struct Part {
    uint32_t first_row = 0, end_row = 0, first_block = 0;
    uint32_t blocks = 0;  ///< number of blocks after the change
  };
  template <class Column>
  void write(const Column* columns, RowEdits& edits, uint64_t begin);
  uint64_t begin_of(uint32_t part) const { return parts_[part].first_block + part * step_; }

  BlockIndex& index_;
  SpareIndex& spare_;
  std::vector<Part> parts_;
  uint64_t step_;  ///< distance of the spaces of consecutive parts, in blocks
};

}  // namespace tessera::sparse
