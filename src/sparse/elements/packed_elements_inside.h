// Shared by the sources of PackedElements.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sparse/elements/pack_by_length.h"
#include "sparse/elements/packed_elements.h"
#include "sparse/moves.h"

namespace tessera::sparse {

/// State for changing the pattern, besides index and values.
struct PackedElements::Dynamic {
  uint64_t capacity = 0;
  std::vector<RowsOfKBlock> rows;  ///< per block, while the pattern changes
  std::shared_ptr<Moves> moves;

  size_t bytes() const {
    size_t bytes = moves == nullptr ? 0 : moves->former.size() * sizeof(uint32_t);
    for (const RowsOfKBlock& r : rows) bytes += r.bytes();
    return bytes;
  }
};

/// The transposed index, built by the first caller that needs it.
struct PackedElements::Transposed {
  std::mutex mutex;
  std::atomic<bool> is_current = false;
  TransposedElements elements;
};

template <class Visit>
void PackedElements::for_each_nonzero(const base::ParallelFor& parallel, const Visit& visit) const {
  parallel(chunks(), [&](uint32_t chunk) {
    const uint32_t first_row = index_.chunk_begin[chunk];
    std::vector<uint64_t> next(&row_begin_[first_row], &row_begin_[first_row + index_.rows_of(chunk)]);
    for (uint32_t k = 0; k < k_blocks(); ++k)
      for_each_slice(index_, uint64_t{chunk} * k_blocks() + k, [&](uint16_t row, const ElementSlice& slice) {
        for_each_in_order(index_, slice, [&](uint32_t column, uint64_t place) {
          visit(next[row]++, place, k * k_block() + column);
        });
      });
  });
}

}  // namespace tessera::sparse
