#include "sparse/blocks/block_index.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "sparse/parts.h"

namespace tessera::sparse {

uint64_t BlockIndex::bytes() const {
  return columns.size() + (row_begin.size() + slots.size()) * sizeof(uint32_t);
}

BlockIndex empty_index(uint32_t rows, uint32_t cols, uint64_t capacity, bool with_slots) {
  BlockIndex index;
  index.row_begin.assign(size_t{rows} + 1, 0);
  index.column_type = cols <= 0x10000 ? Type::u16 : Type::u32;
  index.columns.resize(capacity * size_of(index.column_type));
  if (with_slots) index.slots.resize(capacity);
  return index;
}

void set_positions(BlockIndex& index, const Pattern& pattern, const base::ParallelFor& parallel) {
  std::copy(pattern.crow_indices.begin(), pattern.crow_indices.end(), index.row_begin.begin());
  const auto blocks = static_cast<uint32_t>(pattern.blocks());
  with_columns(index, [&](auto* columns) {
    for_each_part(blocks, parts_for(blocks * sizeof(uint32_t)), parallel,
                  [&](uint32_t, uint32_t begin, uint32_t end) {
                    std::copy_n(pattern.col_indices.data() + begin, end - begin, columns + begin);
                  });
  });
}

void transpose(const BlockIndex& from, BlockIndex& to) {
  std::fill(to.row_begin.begin(), to.row_begin.end(), 0);
  // Counts are one entry late, and become the position of each row's next block.
  with_columns(from, [&](const auto* columns) {
    uint32_t* next = to.row_begin.data() + 1;
    for (uint64_t i = 0; i < from.blocks(); ++i) ++next[columns[i]];
    uint32_t before = 0;
    for (uint32_t r = 0; r < to.rows(); ++r) before += std::exchange(next[r], before);
    with_columns(to, [&](auto* rows) {
      for (uint32_t r = 0; r < from.rows(); ++r) {
        for (uint64_t i = from.row_begin[r]; i < from.row_begin[r + 1]; ++i) {
          const uint32_t at = next[columns[i]]++;
          rows[at] = static_cast<std::remove_pointer_t<decltype(rows)>>(r);
          to.slots[at] = from.slot(i);
        }
      }
    });
  });
}

}  // namespace tessera::sparse
