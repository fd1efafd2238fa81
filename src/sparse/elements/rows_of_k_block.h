// The rows of a block of single elements (a k-block of a chunk) as they are to be packed.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <span>
#include <vector>

#include "sparse/elements/element_edits.h"
#include "sparse/elements/element_index.h"
#include "sparse/elements/row_splits.h"

namespace tessera::sparse {

/// For each row of the chunk its columns in the k-block, ascending, and where their values are now.
class RowsOfKBlock {
 public:
  struct Row {
    uint32_t begin = 0;  ///< among columns and places
    uint32_t length = 0;
  };

  /// The rows of a block as they are.
  void take(const ElementIndex& index, uint32_t block) { take(index, block, {}, 0); }

  /// The rows as edits leave them, whose new elements have their values at `none`. Throws
  /// UsageError for an element that goes and is not there, grows and is there, or is named twice.
  void take(const ElementIndex& index, uint32_t block, std::span<const ElementEdit> edits, uint32_t none);

  /// The rows of a pattern. Where it says so, elements that are there already have their values.
  void take(const ElementIndex& index, uint32_t block, const Pattern& pattern, const RowSplits& cuts,
            bool finds_values, uint32_t none);

  const std::vector<RowGroup>& row_groups() const { return row_groups_; }
  uint64_t places() const { return places_; }
  /// None behind the last row.
  Row row(uint32_t row) const { return row < rows_.size() && rows_[row].length > 0 ? rows_[row] : Row{}; }
  /// They lie far apart, in an order that no hardware prefetcher follows.
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
  std::vector<uint16_t> columns_;  ///< these two may be longer than what is in use
  std::vector<uint32_t> values_;
  std::vector<RowGroup> row_groups_;
  uint64_t places_ = 0;
};

}  // namespace tessera::sparse
