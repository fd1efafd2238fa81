// What the sources of PackedElements share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sparse/pack_by_length.h"
#include "sparse/packed_elements.h"

namespace tessera::sparse {

/// What changing the pattern needs beside index and values: both are written anew from here.
struct PackedElements::Dynamic {
  uint64_t capacity = 0;
  Pattern pattern;
  ElementIndex spare;                    ///< the next pattern's, before it takes the present one's place
  std::vector<std::byte> former_values;  ///< as long as the values
  std::shared_ptr<std::vector<uint32_t>> moves;

  size_t bytes() const {
    return pattern.columns.size() * sizeof(uint32_t) + spare.bytes() + former_values.size() +
           (moves == nullptr ? 0 : moves->size() * sizeof(uint32_t));
  }
};

/// The transposed index, built by whoever needs it first.
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
