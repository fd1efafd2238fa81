// Dropped and grown single elements, by block of the index.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "sparse/elements/element_index.h"

namespace tessera::sparse {

/// An edit within a block; ascending by row, column, and drops before grows.
struct ElementEdit {
  uint32_t key = 0;

  ElementEdit() = default;
  ElementEdit(uint32_t row, uint32_t column, bool grows)
      : key((row << kColumnBits | column) << 1 | (grows ? 1 : 0)) {}

  uint32_t row() const { return key >> (kColumnBits + 1); }  ///< row in the chunk
  uint32_t column() const { return key >> 1 & kMaxKBlock; }  ///< column in the k-block
  bool grows() const { return (key & 1) != 0; }
};

class ElementEdits {
 public:
  /// Throws UsageError for an element outside the matrix.
  ElementEdits(const ElementIndex& index, std::span<const BlockPosition> drop,
               std::span<const BlockPosition> grow, const base::ParallelFor& parallel);

  /// The edits of a block, in any order.
  std::span<const ElementEdit> of(uint32_t block) const {
    return {edits_.data() + begin_[block], edits_.data() + begin_[block + 1]};
  }

 private:
  std::vector<uint32_t> begin_;
  std::vector<ElementEdit> edits_;
};

/// A block's edits in order, by the rows of its chunk.
class SortedEdits {
 public:
  SortedEdits(std::span<const ElementEdit> edits, uint32_t rows);

  std::span<const ElementEdit> of(uint32_t row) const {
    return {edits_.data() + begin_[row], edits_.data() + begin_[row + 1]};
  }

 private:
  std::vector<uint32_t> begin_;
  std::vector<ElementEdit> edits_;
};

/// Throws UsageError for an element that cannot be dropped or grown.
[[noreturn]] void refuse(uint64_t row, uint64_t col, bool grows, const char* why);

}  // namespace tessera::sparse
