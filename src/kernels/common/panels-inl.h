// Copying panels of X and transposing micro-tiles: the data movement of the sparse kernels.
#if defined(TESSERA_KERNELS_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_PANELS_INL_H_
#undef TESSERA_KERNELS_PANELS_INL_H_
#else
#define TESSERA_KERNELS_PANELS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
inline constexpr size_t kLanes = hn::MaxLanes(Floats());

// Transposes the 4 × 4 matrix in each 128-bit block of four vectors.
template <class D, class V>
HWY_INLINE void transpose_four(D d, V& v0, V& v1, V& v2, V& v3) {
  const hn::RepartitionToWide<D> wide;
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, v0, v1));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, v0, v1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, v2, v3));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, v2, v3));
  v0 = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
  v1 = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
  v2 = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
  v3 = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
}

// Stores each 128-bit block of v, `step` floats apart.
template <class D, class V>
HWY_INLINE void store_blocks(D d, V v, float* to, size_t step) {
  if constexpr (hn::MaxLanes(d) == 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), to, step);
    store_blocks(half, hn::UpperHalf(half, v), to + hn::MaxLanes(d) / 8 * step, step);
  }
}

// Transposes matrices of 4 × 4 (or 2 × 2) 128-bit blocks, of which a vector holds a row: the vectors of rows
// of blocks become vectors of columns.
template <class D, class V>
HWY_INLINE void transpose_blocks(D d, V* v) {
  if constexpr (hn::MaxLanes(d) == 8) {
    const V first = v[0];
    v[0] = hn::ConcatLowerLower(d, v[1], first);
    v[1] = hn::ConcatUpperUpper(d, v[1], first);
  } else if constexpr (hn::MaxLanes(d) == 16) {
    const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[1]), v[0]);
    const V odd01 = hn::OddEvenBlocks(v[1], hn::SwapAdjacentBlocks(v[0]));
    const V even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[3]), v[2]);
    const V odd23 = hn::OddEvenBlocks(v[3], hn::SwapAdjacentBlocks(v[2]));
    v[0] = hn::ConcatLowerLower(d, even23, even01);
    v[1] = hn::ConcatLowerLower(d, odd23, odd01);
    v[2] = hn::ConcatUpperUpper(d, even23, even01);
    v[3] = hn::ConcatUpperUpper(d, odd23, odd01);
  }
}

// Transposes kLanes × kLanes elements: row i is load(i), and column i of them goes to store(i, vector).
template <class Load, class Store>
HWY_INLINE void transpose_square(const Load& load, const Store& store) {
  const Floats d;
  constexpr size_t kBlocks = kLanes / 4;
  hn::Vec<Floats> v[4][kBlocks];  // [row in a block][block]
#pragma GCC unroll 4
  for (size_t block = 0; block < kBlocks; ++block) {
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) v[i][block] = load(4 * block + i);
    transpose_four(d, v[0][block], v[1][block], v[2][block], v[3][block]);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    transpose_blocks(d, v[i]);
#pragma GCC unroll 4
    for (size_t block = 0; block < kBlocks; ++block) store(4 * block + i, v[i][block]);
  }
}

// Transposes kLanes × kLanes elements between arrays; with `stream`, by non-temporal stores.
HWY_INLINE void transpose_square(const float* from, size_t from_step, float* to, size_t to_step,
                                 bool stream) {
  const Floats d;
  const auto load = [=](size_t i) HWY_ATTR { return hn::LoadU(d, from + i * from_step); };
  transpose_square(load, [=](size_t i, hn::Vec<Floats> v) HWY_ATTR {
    stream ? hn::Stream(v, d, to + i * to_step) : hn::StoreU(v, d, to + i * to_step);
  });
}

// Transposes up to four rows.
inline void transpose_strip(const float* from, size_t from_step, size_t rows, size_t cols, float* to,
                            size_t to_step) {
  const Floats d;
  size_t c = 0;
  for (; rows == 4 && c + kLanes <= cols; c += kLanes) {
    auto v0 = hn::LoadU(d, from + c);
    auto v1 = hn::LoadU(d, from + from_step + c);
    auto v2 = hn::LoadU(d, from + 2 * from_step + c);
    auto v3 = hn::LoadU(d, from + 3 * from_step + c);
    transpose_four(d, v0, v1, v2, v3);
    float* out = to + c * to_step;
    store_blocks(d, v0, out, 4 * to_step);
    store_blocks(d, v1, out + to_step, 4 * to_step);
    store_blocks(d, v2, out + 2 * to_step, 4 * to_step);
    store_blocks(d, v3, out + 3 * to_step, 4 * to_step);
  }
  for (; c < cols; ++c)
    for (size_t i = 0; i < rows; ++i) to[c * to_step + i] = from[i * from_step + c];
}

// to[c * to_step + r] = from[r * from_step + c]; with `stream`, whole squares by non-temporal stores: then
// `to` begins at a vector, and to_step is whole vectors.
inline void transpose(const float* from, size_t from_step, size_t rows, size_t cols, float* to,
                      size_t to_step, bool stream = false) {
  size_t r = 0;
  for (; r + kLanes <= rows; r += kLanes) {
    const float* strip = from + r * from_step;
    size_t c = 0;
    for (; c + kLanes <= cols; c += kLanes)
      transpose_square(strip + c, from_step, to + c * to_step + r, to_step, stream);
    for (size_t i = 0; c < cols && i < kLanes; i += 4)
      transpose_strip(strip + i * from_step + c, from_step, 4, cols - c, to + c * to_step + r + i, to_step);
  }
  for (; r < rows; r += 4)
    transpose_strip(from + r * from_step, from_step, std::min<size_t>(4, rows - r), cols, to + r, to_step);
}

// Transposes into columns of Y from row `row` on; with `stream`, these begin at vectors.
inline void transpose_into_columns(const float* from, size_t from_step, uint32_t rows, uint32_t cols,
                                   uint32_t row, float* y, int64_t col_stride, bool stream) {
  const auto step = static_cast<size_t>(col_stride);
  const auto lanes = static_cast<uint32_t>(kLanes);
  const uint32_t before = stream ? std::min(rows, (lanes - row % lanes) % lanes) : 0;
  transpose(from, from_step, before, cols, y, step);
  transpose(from + before * from_step, from_step, rows - before, cols, y + before, step, stream);
}

// For rows that begin `columns` after a vector boundary: rotates each row by `columns`, so that its last
// columns come first. Then all vectors are aligned, and the first is in two parts. Pointers to rows point to
// the boundary.
struct Rotation {
  uint32_t columns = 0;
  size_t length = 0;  // length of a row

  // The parts of the first vector: its last lanes, and its first ones.
  HWY_INLINE hn::Mask<Floats> end_of_row() const { return hn::FirstN(Floats(), columns); }
  HWY_INLINE hn::Vec<Floats> load(const float* row) const {
    const Floats d;
    return hn::Or(hn::MaskedLoad(end_of_row(), d, row + length),
                  hn::MaskedLoad(hn::Not(end_of_row()), d, row));
  }
  HWY_INLINE void store(hn::Vec<Floats> v, float* row) const {
    const Floats d;
    hn::BlendedStore(v, end_of_row(), d, row + length);
    hn::BlendedStore(v, hn::Not(end_of_row()), d, row);
  }
};

inline uint32_t columns_past_vector(const float* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  return address % sizeof(float) == 0 ? static_cast<uint32_t>(address / sizeof(float) % kLanes) : 0;
}

// The rotation of `cols` columns of Y from `col` on for aligned stores; 0 if there is none.
inline Rotation rotation_to_align(const MatrixView<float>& y, uint32_t col, uint32_t cols) {
  if (y.col_stride != 1 || y.row_stride % kLanes != 0 || cols % kLanes != 0) return {};
  return {columns_past_vector(y.pointer_to(0, col)), cols};
}

// The columns of X from col_begin in one micro-tile of a panel: `cols` of them, zeros up to `width`. For
// rotated rows X is row-major.
struct PanelTile {
  int64_t col_begin;
  uint32_t cols;
  uint32_t width;
  float* to;
  Rotation rotation = {};
};

inline void pack_rows(const float* row, int64_t row_stride, uint32_t k, const PanelTile& tile) {
  // Rows of X are often a power of two apart, which no hardware prefetcher follows.
  constexpr int64_t kAhead = 16;
  // Prefetch distance in the panel, which streams of W and Y may have evicted from the L2 cache.
  constexpr size_t kFloatsAhead = 512;
  const Floats d;
  float* to = tile.to;
  for (uint32_t i = 0; i < k; ++i, row += row_stride) {
    uint32_t c = 0;
    if (tile.rotation.columns != 0) {
      hn::StoreU(tile.rotation.load(row), d, to);
      c += kLanes;
      to += kLanes;
    }
    for (; c + kLanes <= tile.cols; c += kLanes, to += kLanes) {
      hn::StoreU(hn::LoadU(d, row + c), d, to);
      hwy::Prefetch(row + kAhead * row_stride + c);
      hwy::Prefetch(to + kFloatsAhead);
    }
    if (c < tile.width) {
      for (; c < tile.cols; ++c) *to++ = row[c];
      for (; c < tile.width; ++c) *to++ = 0;
    }
  }
}

inline void pack_columns(const float* x, int64_t col_stride, uint32_t k, const PanelTile& tile) {
  constexpr uint32_t kDepth = 32;  // rows at a time: their part of the panel stays in the L1 cache
  for (uint32_t i = 0; i < k; i += kDepth) {
    const uint32_t depth = std::min(kDepth, k - i);
    float* to = tile.to + size_t{i} * tile.width;
    for (uint32_t c = 0; c < tile.cols; c += kLanes) {
      const float* from = x + c * col_stride + i;
      const uint32_t cols = std::min(static_cast<uint32_t>(kLanes), tile.cols - c);
      for (uint32_t j = 0; j < cols; ++j) {
        hwy::Prefetch(from + j * col_stride + kDepth);
        hwy::Prefetch(from + j * col_stride + kDepth + 16);
      }
      transpose(from, static_cast<size_t>(col_stride), cols, depth, to + c, tile.width);
    }
    if (tile.cols < tile.width) {
      for (uint32_t r = 0; r < depth; ++r) {
        std::fill(to + r * tile.width + tile.cols, to + (r + 1) * tile.width, 0.0F);
      }
    }
  }
}

// Copies rows 0 to k of the micro-tile's columns, and zeros for the overhang of the last block.
inline void copy_micro_tile(MatrixView<const float> x, uint32_t k, uint32_t depth, const PanelTile& tile) {
  const float* first = x.data + tile.col_begin * x.col_stride;
  if (x.col_stride == 1) {
    pack_rows(first, x.row_stride, k, tile);
  } else {
    pack_columns(first, x.col_stride, k, tile);
  }
  std::fill(tile.to + size_t{k} * tile.width, tile.to + size_t{depth} * tile.width, 0.0F);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
