#include "sparse/element_index.h"

#include <algorithm>

namespace tessera::sparse {
namespace {

template <class T>
void grow(std::vector<T>& items, uint64_t count) {
  if (items.size() < count) items.resize(count);
}

}  // namespace

size_t ElementIndex::bytes() const {
  return words.size() * sizeof(words[0]) + bundles.size() * sizeof(bundles[0]) +
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

void place_bundles(const std::vector<std::vector<ElementBundle>>& bundles_of_block, ElementIndex& index,
                   const base::ParallelFor& parallel) {
  ElementBlock at;
  index.blocks.resize(bundles_of_block.size() + 1);
  for (size_t block = 0; block < bundles_of_block.size(); ++block) {
    index.blocks[block] = at;
    at.bundle += bundles_of_block[block].size();
    for (const ElementBundle& bundle : bundles_of_block[block]) {
      at.value += bundle.value_count();
      at.index += bundle.index_count();
    }
  }
  index.blocks.back() = at;
  grow(index.bundles, at.bundle);
  grow(index.words, at.index);
  parallel(static_cast<uint32_t>(bundles_of_block.size()), [&](uint32_t block) {
    const std::vector<ElementBundle>& bundles = bundles_of_block[block];
    std::copy(bundles.begin(), bundles.end(),
              index.bundles.begin() + static_cast<int64_t>(index.blocks[block].bundle));
  });
}

}  // namespace tessera::sparse
