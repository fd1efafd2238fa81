#include "sparse/elements/element_index.h"

#include <algorithm>

namespace tessera::sparse {
namespace {

template <class T>
void grow(base::BufferVector<T>& items, uint64_t count) {
  if (items.size() < count) items.resize(count);
}

}  // namespace

size_t ElementIndex::bytes() const {
  return words.size() * sizeof(words[0]) + row_groups.size() * sizeof(row_groups[0]) +
         blocks.size() * sizeof(blocks[0]);
}

SliceTable::SliceTable(const ElementIndex& index, const base::ParallelFor& parallel)
    : rows_(index.rows), slices_(uint64_t{index.k_blocks()} * index.rows) {
  const uint32_t k_blocks = index.k_blocks();
  parallel(index.chunks() * k_blocks, [&](uint32_t block) {
    ElementSlice* of_chunk =
        &slices_[uint64_t{block % k_blocks} * rows_ + index.chunk_begin[block / k_blocks]];
    for_each_slice(index, block, [&](uint16_t row, const ElementSlice& slice) { of_chunk[row] = slice; });
  });
}

void place_row_groups(const std::vector<std::vector<RowGroup>>& row_groups_of_block, ElementIndex& index,
                      const base::ParallelFor& parallel) {
  ElementBlock at;
  index.blocks.resize(row_groups_of_block.size() + 1);
  for (size_t block = 0; block < row_groups_of_block.size(); ++block) {
    index.blocks[block] = at;
    at.row_group += row_groups_of_block[block].size();
    for (const RowGroup& row_group : row_groups_of_block[block]) {
      at.value += row_group.value_count();
      at.index += row_group.index_count();
    }
  }
  index.blocks.back() = at;
  grow(index.row_groups, at.row_group);
  grow(index.words, at.index);
  parallel(static_cast<uint32_t>(row_groups_of_block.size()), [&](uint32_t block) {
    const std::vector<RowGroup>& row_groups = row_groups_of_block[block];
    std::copy(row_groups.begin(), row_groups.end(),
              index.row_groups.begin() + static_cast<int64_t>(index.blocks[block].row_group));
  });
}

}  // namespace tessera::sparse
