// Y = W·X for block-sparse weights, and for dense ones, whose pattern is full.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "kernels/common/epilogue.h"
#include "kernels/common/window.h"
#include "program/codelet.h"
#include "sparse/blocks/packed_blocks.h"

namespace tessera::kernels {

/// How a product is partitioned over cores, and how a core processes its slice: the knobs of a plan.
struct BlockSchedule {
  enum class Kernel : uint8_t {
    wide,         ///< vectors along the columns of Y; values of W are broadcast
    few_columns,  ///< vectors along the rows of Y; for few columns
    bf16,         ///< X and Y in BF16, by the processor's BF16 instructions (kernels/common/bf16_product.h)
  };

  Kernel kernel = Kernel::wide;
  uint16_t row_parts = 1;     ///< slices along the rows of Y
  uint16_t col_parts = 1;     ///< slices along the columns of Y
  uint8_t micro_rows = 8;     ///< wide: height of a micro-tile in rows, 4 or 8 (4 × 4 blocks: 4)
  uint8_t micro_vectors = 3;  ///< wide: maximum width of a micro-tile in vectors
  uint32_t panel_cols = 48;   ///< wide: columns of X that stay in the L2 cache while W streams
  bool copy_x = true;         ///< wide: copy the panel of X; otherwise only if X cannot be read where it is
  bool stream_y = false;      ///< wide: write Y with non-temporal stores if it is aligned

  bool operator==(const BlockSchedule&) const = default;
};

/// A block-sparse weight as kernels see it: the arrays of sparse::PackedBlocks. If transposed, it is Wᵀ:
/// rows, columns and index belong to Wᵀ, and each block is the transpose of the stored one.
struct BlockWeight {
  uint32_t rows = 0;  ///< m
  uint32_t cols = 0;  ///< k
  uint32_t block_size = 8;
  Type type = Type::f32;         ///< type of the values: f32, f16 or bf16
  Type column_type = Type::u16;  ///< type of the columns: u16 or u32
  const void* values = nullptr;
  const uint32_t* row_begin = nullptr;
  const void* columns = nullptr;
  const uint32_t* slots = nullptr;  ///< slot of each block's values; null: its own number
  bool transposed = false;
  uint32_t capacity = 0;  ///< for an unknown pattern, whose row_begin is null: number of blocks for the cost

  uint32_t column(size_t block) const {
    if (column_type == Type::u16) return static_cast<const uint16_t*>(columns)[block];
    return static_cast<const uint32_t*>(columns)[block];
  }
};

/// The weight, or its transpose, which builds the transposed index on first use.
BlockWeight view_of(const sparse::PackedBlocks& weight, bool transposed = false);

/// One core's slice of Y = activation(alpha · W·X + beta · Y + bias): block rows of W times columns of X. x
/// and y are the whole matrices. For the wide kernel, x may be images instead, and X the elements under a
/// window in them.
struct BlockSlice {
  BlockWeight weight;
  uint32_t block_row_begin = 0;
  uint32_t block_row_end = 0;
  uint32_t col_begin = 0;
  uint32_t col_end = 0;
  MatrixView<const float> x;
  Seen seen = {};
  MatrixView<float> y;
  MatrixView<const base::Bfloat16> x_bf16;  ///< instead of x and y for Kernel::bf16, which takes no images
  MatrixView<base::Bfloat16> y_bf16;
  Epilogue epilogue;
  BlockSchedule schedule;
  float* scratch = nullptr;              ///< block_scratch_floats() of them, cache-line aligned
  program::PhaseClock* clock = nullptr;  ///< may be null
  program::Helpers* helpers = nullptr;   ///< may be null
};

/// Blocks of a slice of a product or of an SDDMM: counted, or an equal part of all if the pattern is not
/// known yet.
template <class Slice>
double blocks_of(const Slice& slice) {
  const BlockWeight& w = slice.weight;
  if (w.row_begin == nullptr) return double{1} * w.capacity / slice.schedule.row_parts;
  return w.row_begin[slice.block_row_end] - w.row_begin[slice.block_row_begin];
}

/// Whether images may be read where they are: what each tap sees of a channel is the channel, shifted and
/// masked, and the columns of a block are of one tap.
inline bool can_shift(const Seen& seen, uint32_t block_size, int64_t row_stride) {
  return seen.window.keeps_size() && seen.channels % block_size == 0 &&
         int64_t{seen.channels} * row_stride < INT32_MAX / 2;
}

/// Whether blocks of W and activations of these types are for Kernel::bf16, forward and without a window.
constexpr bool suits_bf16(Type weights, uint32_t block_size) {
  return weights == Type::bf16 && (block_size == 16 || block_size == 32);
}

/// Computes a slice. Its bits depend only on the slice, the schedule and the instruction set.
void block_spmm(const BlockSlice& slice);

/// The reference of block_spmm() in plain loops.
void block_spmm_reference(const BlockSlice& slice);

/// Floats of scratch for a slice of `cols` columns; k is the product's k: for a transposed weight, its rows.
size_t block_scratch_floats(const BlockSchedule& schedule, uint32_t k, uint32_t block_size, uint32_t cols,
                            bool transposed = false);

}  // namespace tessera::kernels
