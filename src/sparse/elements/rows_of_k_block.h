// The rows of a block of single elements (a k-block of a chunk) to be packed.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <span>
#include <vector>

#include "sparse/elements/element_edits.h"
#include "sparse/elements/element_index.h"
#include "sparse/elements/row_splits.h"

namespace tessera::sparse {

/// For each row of the chunk: its columns in the k-block, ascending, and the present places of their values.
class RowsOfKBlock {
 public:
  struct Row {
    uint32_t begin = 0;  ///< first position in columns and places
    uint32_t length = 0;
  };

  /// The present rows of a block.
  void take(const ElementIndex& index, uint32_t block) { take(index, block, {}, 0); }

  /// The rows after edits; new elements have their values at `none`. Throws UsageError for a dropped element
  /// that does not exist, a grown element that exists, and duplicates.
  void take(const ElementIndex& index, uint32_t block, std::span<const ElementEdit> edits, uint32_t none);

  /// The rows of a pattern. If requested, existing elements keep their values.
  void take(const ElementIndex& index, uint32_t block, const Pattern& pattern, const RowSplits& splits,
            bool finds_values, uint32_t none);

  const std::vector<RowGroup>& row_groups() const { return row_groups_; }
  uint64_t places() const { return places_; }
  /// A row; empty after the last row.
  Row row(uint32_t row) const { return row < rows_.size() && rows_[row].length > 0 ? rows_[row] : Row{}; }
  /// Prefetches a row: rows lie far apart, in an order that no hardware prefetcher follows.
  void fetch(uint32_t row) const {
    const Row r = this->row(row);
    __builtin_prefetch(columns(r));
    __builtin_prefetch(values(r));
  }
  const uint16_t* columns(const Row& row) const { return columns_.data() + row.begin; }
  const uint32_t* values(const Row& row) const { return values_.data() + row.begin; }
  size_t bytes() const;

 private:
  void reset(uint32_t rows, uint64_t most_elements);
  void row_group();

  std::vector<Row> rows_;
  std::vector<uint16_t> columns_;  ///< `columns_` and `places_` may be longer than the part in use
  std::vector<uint32_t> values_;
  std::vector<RowGroup> row_groups_;
  uint64_t places_ = 0;
};

}  // namespace tessera::sparse
