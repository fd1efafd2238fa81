// Conversion of a block's values between row-major and packed order.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "sparse/blocks/block_order.h"
#include "sparse/packed_values.h"

namespace tessera::sparse {

/// Calls move(row-major position, packed position) for each value of a block, in packed order. All orders and
/// thus all positions are compile-time constants.
template <uint32_t kBlockSize, class Move>
void for_each_position(const Move& move) {
  constexpr BlockOrder kOrder = order_of(kBlockSize);
  uint32_t packed = 0;
  for (uint32_t strip = 0; strip < kBlockSize; strip += kOrder.strip_rows)
    for (uint32_t col = 0; col < kBlockSize; col += kOrder.group)
      for (uint32_t r = 0; r < kOrder.strip_rows; ++r)
        for (uint32_t c = 0; c < kOrder.group; ++c) move((strip + r) * kBlockSize + col + c, packed++);
}

template <class Move>
void for_each_position(uint32_t block_size, const Move& move) {
  switch (block_size) {
    case 4: return for_each_position<4>(move);
    case 8: return for_each_position<8>(move);
    case 16: return for_each_position<16>(move);
    default: return for_each_position<32>(move);
  }
}

/// Rounds a row-major block and stores it in packed order.
template <class T>
void pack_block(uint32_t block_size, const float* block, T* packed) {
  for_each_position(block_size, [&](uint32_t from, uint32_t to) { convert(block[from], packed[to]); });
}

/// Loads a block in packed order to row-major FP32.
template <class T>
void unpack_block(uint32_t block_size, const T* packed, float* block) {
  for_each_position(block_size,
                    [&](uint32_t to, uint32_t from) { block[to] = base::to_float(packed[from]); });
}

}  // namespace tessera::sparse
