// Pairs rows that share columns.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::sparse {

/// A non-empty part of a row: its columns in a k-block, ascending.
struct RowSlice {
  uint16_t row;
  uint16_t count;
  const uint32_t* columns;
};

/// Two row slices and the columns that they share. b.count is 0 if there is no second row.
struct RowPair {
  RowSlice a;
  RowSlice b;
  uint16_t shared;
};

/// Pairs the slices of a k-block of `width` columns that starts at `first_column`: greedily, each slice with
/// the slice, among the next few in length, that shares most and leaves least unpaired. a.count >= b.count.
std::vector<RowPair> pair_rows(std::vector<RowSlice> slices, uint32_t first_column, uint32_t width);

}  // namespace tessera::sparse
