// Blocks that go from an index and blocks that come to it.
#pragma once

#include <cstdint>
#include <vector>

#include "sparse/block_index.h"

namespace tessera::sparse {

struct BlockEdit {
  uint32_t row = 0;
  uint32_t col = 0;
  bool grows = false;
  uint32_t slot = 0;
  uint32_t at = 0;  ///< in the index: the row's first block that is not left of this one
};

/// Sorts by row, column, and drops before grows.
void sort(std::vector<BlockEdit>& edits, uint32_t rows);

/// Finds the places of sorted edits.
void locate(const BlockIndex& index, std::vector<BlockEdit>& edits);

/// Applies located edits. The cost beside that of the edits is one of copying the index.
void splice(BlockIndex& index, const std::vector<BlockEdit>& edits);

/// The same edits as the transposed index sees them, neither sorted nor located.
std::vector<BlockEdit> transpose(std::vector<BlockEdit> edits);

}  // namespace tessera::sparse
