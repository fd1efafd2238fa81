// The BF16 kernel: sums of blocks of W times panels of X in pairs, by the processor's BF16 instructions.
#if defined(TESSERA_BLOCK_SPARSE_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_BF16_INL_H_
#undef TESSERA_BLOCK_SPARSE_BF16_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_BF16_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/activation-inl.h"
#include "kernels/common/bf16_product.h"
#include "kernels/host/block_sparse/layout.h"
#include "kernels/host/dense/copy-inl.h"
#include "program/codelet.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Bf16Slice {
 public:
  explicit Bf16Slice(const BlockSlice& slice)
      : slice_(slice),
        w_(slice.weight),
        scratch_(w_.cols, w_.block_size, slice.col_end - slice.col_begin),
        x_(reinterpret_cast<base::Bfloat16*>(slice.scratch)) {}

  void run() const {
    for (uint32_t col = slice_.col_begin; col < slice_.col_end; col += scratch_.panel_cols) {
      const uint32_t cols = std::min(scratch_.panel_cols, slice_.col_end - col);
      program::enter(slice_.clock, program::Phase::rearrange);
      program::share_work(slice_.helpers, (tiles_of(cols) + 1) / 2, nullptr, [&](uint32_t i, std::byte*) {
        const uint32_t first = 2 * i * kBf16Columns;
        pack_two(col + first, std::min(2 * kBf16Columns, cols - first), x_ + 2 * i * scratch_.tile_values);
      });
      program::enter(slice_.clock, program::Phase::compute);
      const PartSplit rows(slice_.block_row_begin, slice_.block_row_end, w_.block_size);
      program::share_work(slice_.helpers, rows.parts(), slice_.scratch,
                          [&](uint32_t i, std::byte* of_thread) {
                            const ThreadScratch at(scratch_, of_thread);
                            Bf16Product product;
                            Sums sums{at.sums};
                            for (uint32_t r = rows.begin_of(i); r < rows.end_of(i); ++r)
                              block_row(r, col, cols, at, product, sums);
                            finish(sums);
                          });
    }
  }

 private:
  // The sums of a part of Y, which are finished while the sums of the next part are computed.
  struct Sums {
    float* next;
    float* at = nullptr;
    uint32_t row = 0, rows = 0, col = 0, cols = 0;
  };

  struct ThreadScratch {
    base::Bfloat16* blocks;
    uint32_t* columns;
    float* sums;

    ThreadScratch(const Bf16BlockScratch& scratch, std::byte* of_thread) {
      auto* floats = reinterpret_cast<float*>(of_thread);
      blocks = reinterpret_cast<base::Bfloat16*>(floats + scratch.blocks);
      columns = reinterpret_cast<uint32_t*>(floats + scratch.columns);
      sums = floats + scratch.sums;
    }
  };

  static constexpr uint32_t kSumsStep = kBf16BlockTiles * kBf16Columns;

  static uint32_t tiles_of(uint32_t cols) { return (cols + kBf16Columns - 1) / kBf16Columns; }

  // Copies columns of X as pairs of rows, up to two tiles.
  void pack_two(uint32_t col, uint32_t cols, base::Bfloat16* to) const {
    const MatrixView<const base::Bfloat16>& x = slice_.x_bf16;
    if (cols == 2 * kBf16Columns && x.col_stride == 1)
      return pack_two_bf16_panels(x.pointer_to(0, col), static_cast<size_t>(x.row_stride), w_.cols, to,
                                  kBf16StepValues, scratch_.tile_values);
    for (uint32_t c = 0; c < cols; c += kBf16Columns, to += scratch_.tile_values)
      pack(col + c, std::min(kBf16Columns, cols - c), to);
  }
  void pack(uint32_t col, uint32_t cols, base::Bfloat16* to) const {
    const MatrixView<const base::Bfloat16>& x = slice_.x_bf16;
    if (x.col_stride == 1)
      return pack_bf16_pairs(x.pointer_to(0, col), static_cast<size_t>(x.row_stride), w_.cols, cols, to,
                             kBf16StepValues);
    HWY_ALIGN base::Bfloat16 lines[kBf16StepValues];
    std::fill(lines, lines + kBf16StepValues, base::Bfloat16{});
    for (uint32_t row = 0; row < w_.cols; row += kBf16Step, to += kBf16StepValues) {
      const uint32_t rows = std::min(kBf16Step, w_.cols - row);
      for (uint32_t c = 0; c < cols; ++c) {
        const base::Bfloat16* from = x.pointer_to(row, col + c);
        base::Bfloat16* line = lines + c * kBf16Step;
        if (x.row_stride == 1)
          std::copy_n(from, rows, line);
        else
          for (uint32_t r = 0; r < rows; ++r) line[r] = from[r * x.row_stride];
        std::fill(line + rows, line + kBf16Step, base::Bfloat16{});
      }
      transpose_square(reinterpret_cast<const float*>(lines), kBf16Step / 2, reinterpret_cast<float*>(to),
                       kBf16Columns, false);
    }
  }

  void block_row(uint32_t block_row, uint32_t col, uint32_t cols, const ThreadScratch& at,
                 Bf16Product& product, Sums& sums) const {
    const uint32_t begin = w_.row_begin[block_row], count = w_.row_begin[block_row + 1] - begin;
    if (w_.column_type == Type::u16)
      std::copy_n(static_cast<const uint16_t*>(w_.columns) + begin, count, at.columns);
    else
      std::copy_n(static_cast<const uint32_t*>(w_.columns) + begin, count, at.columns);
    const uint32_t end = std::min((block_row + 1) * w_.block_size, w_.rows);
    for (uint32_t row = block_row * w_.block_size; row < end; row += kBf16BlockRows) {
      for (uint32_t i = 0; i < count; i += blocks_of_step())
        transpose_blocks(begin + i, std::min(blocks_of_step(), count - i), row % w_.block_size,
                         at.blocks + i / blocks_of_step() * kBf16StepValues);
      multiply(row, std::min(kBf16BlockRows, end - row), count, col, cols, at, product, sums);
    }
  }

  // Number of blocks whose terms make a step.
  uint32_t blocks_of_step() const { return kBf16Step / w_.block_size; }

  // Copies rows of blocks side by side as one step: [row][term]. Two strips of a block have pairs of its
  // rows.
  void transpose_blocks(uint32_t block, uint32_t count, uint32_t row, base::Bfloat16* to) const {
    static_assert(kLanes == kBf16Columns);
    const Floats d;
    const hn::Half<Floats> half;
    const sparse::BlockOrder order = sparse::order_of(w_.block_size);
    const uint32_t pairs = w_.block_size / 2;
    const base::Bfloat16* strips[2] = {};
    for (uint32_t i = 0; i < count; ++i) {
      const size_t slot = w_.slots == nullptr ? block + i : w_.slots[block + i];
      strips[i] = static_cast<const base::Bfloat16*>(w_.values) + slot * order.block_values() +
                  row / order.strip_rows * order.strip_values();
    }
    transpose_square(
        [&](size_t i) HWY_ATTR {
          const base::Bfloat16* strip = strips[i / pairs];
          if (strip == nullptr) return hn::Zero(d);
          const auto* upper = reinterpret_cast<const float*>(strip) + i % pairs * order.strip_rows;
          const auto* lower = upper + order.strip_values() / 2;
          return hn::Combine(d, hn::LoadU(half, lower), hn::LoadU(half, upper));
        },
        [&](size_t i, hn::Vec<Floats> v)
            HWY_ATTR { hn::StoreU(v, d, reinterpret_cast<float*>(to + i * kBf16Step)); });
  }

  void multiply(uint32_t row, uint32_t rows, uint32_t count, uint32_t col, uint32_t cols,
                const ThreadScratch& at, Bf16Product& product, Sums& sums) const {
    for (uint32_t tile = 0; tile < tiles_of(cols); tile += kBf16BlockTiles) {
      const uint32_t tiles = std::min(kBf16BlockTiles, tiles_of(cols) - tile);
      const uint32_t first = tile * kBf16Columns;
      product.run(Bf16Blocks{.blocks = at.blocks,
                             .columns = at.columns,
                             .count = count,
                             .block_size = w_.block_size,
                             .x = x_ + tile * scratch_.tile_values,
                             .x_step = scratch_.tile_values,
                             .tiles = tiles,
                             .sums = sums.next});
      finish(sums);
      float* const other = sums.at != nullptr ? sums.at : sums.next + kBf16BlockRows * kSumsStep;
      sums = {other, sums.next, row, rows, col + first, std::min(tiles * kBf16Columns, cols - first)};
    }
  }

  void finish(const Sums& sums) const {
    if (sums.at != nullptr) finish(sums.row, sums.rows, sums.col, sums.cols, sums.at);
  }

  void finish(uint32_t row, uint32_t rows, uint32_t col, uint32_t cols, float* sums) const {
    const MatrixView<base::Bfloat16>& y = slice_.y_bf16;
    const bool is_plain_sum = is_plain(slice_.epilogue);
    const float* bias = bias_of(slice_.epilogue, row);
    if (y.col_stride == 1) {
      if (!is_plain_sum)
        for (uint32_t r = 0; r < rows; ++r)
          finish_line(sums + r * kSumsStep, cols, bias == nullptr ? nullptr : bias + r, false,
                      y.pointer_to(row + r, col), 1);
      return round_to_bf16(sums, kSumsStep, rows, cols, y.pointer_to(row, col), y.row_stride);
    }
    HWY_ALIGN float by_columns[kBf16Columns * kBf16BlockRows];
    for (uint32_t c = 0; c < cols; c += kBf16Columns) {
      const uint32_t some = std::min(kBf16Columns, cols - c);
      transpose_square(sums + c, kSumsStep, by_columns, kBf16BlockRows, false);
      for (uint32_t j = 0; j < some; ++j) {
        base::Bfloat16* const to = y.pointer_to(row, col + c + j);
        float* const line = by_columns + j * kBf16BlockRows;
        if (!is_plain_sum) finish_line(line, rows, bias, true, to, y.row_stride);
        if (y.row_stride != 1)
          for (uint32_t r = 0; r < rows; ++r) to[r * y.row_stride] = base::to_bfloat16(line[r]);
      }
      if (y.row_stride == 1)
        round_to_bf16(by_columns, kBf16BlockRows, some, rows, y.pointer_to(row, col + c), y.col_stride);
    }
  }

  // Replaces sums by the elements of Y, which lie `step` apart. There is a bias per element, or one for all.
  void finish_line(float* sums, uint32_t count, const float* bias, bool is_bias_of_each,
                   const base::Bfloat16* y, int64_t step) const {
    const PanelFloats d;
    const Epilogue& e = slice_.epilogue;
    each_vector(count, [&](size_t i, size_t some) HWY_ATTR {
      auto value = hn::Mul(hn::LoadU(d, sums + i), hn::Set(d, e.alpha));
      if (e.beta != 0) {
        base::Bfloat16 before[kBf16Columns];
        for (size_t j = 0; j < some; ++j) before[j] = y[static_cast<int64_t>(i + j) * step];
        value = hn::MulAdd(hn::Set(d, e.beta), load_some(before, some), value);
      }
      if (bias != nullptr)
        value = hn::Add(value, is_bias_of_each ? load_some(bias + i, some) : hn::Set(d, *bias));
      hn::StoreU(activate(d, e.activation, value), d, sums + i);
    });
  }

  const BlockSlice& slice_;
  const BlockWeight& w_;
  const Bf16BlockScratch scratch_;
  base::Bfloat16* const x_;  // [tile of columns][pair of rows][column][2]
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET
#endif
