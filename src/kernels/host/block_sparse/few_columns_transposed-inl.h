// The few-column micro-tile for transposed blocks: one load gets the values of several columns of W, rows of
// the product, for several of its rows; it is multiplied by an element of X per column of W, each repeated.
#if defined(TESSERA_BLOCK_SPARSE_FEW_COLUMNS_TRANSPOSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_FEW_COLUMNS_TRANSPOSED_INL_H_
#undef TESSERA_BLOCK_SPARSE_FEW_COLUMNS_TRANSPOSED_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_FEW_COLUMNS_TRANSPOSED_INL_H_
#endif

#include "kernels/host/block_sparse/few_columns_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Groups of columns of W in a micro-tile: 8 rows of the product; for 4 × 4 blocks, the only group.
template <int kGroup>
inline constexpr int kGroupsAtOnce = kGroup == 4 ? 1 : 4;

// Maximum columns of X of a micro-tile.
inline constexpr size_t kTransposedTileCols =
    std::max<size_t>(1, std::min<size_t>(4, kFewColumnSums / (4 * kGroupVectors)));

// Copies rows 0 to k of X to [depth / strip rows][cols][kGroupValues], each element kGroup times, with zeros
// from k on.
template <int kGroup>
HWY_NOINLINE void pack_repeated(MatrixView<const float> x, uint32_t k, uint32_t depth, uint32_t cols,
                                float* to) {
  constexpr uint32_t kStripRows = kGroupValues / kGroup;
  for (uint32_t i = 0; i < depth; i += kStripRows) {
    for (uint32_t c = 0; c < cols; ++c) {
      for (uint32_t r = i; r < i + kStripRows; ++r, to += kGroup)
        std::fill_n(to, kGroup, r < k ? x(r, c) : 0.0F);
    }
  }
}

// Adds up each of kGroup columns over the rows: kGroupValues partial sums become kGroup.
template <int kGroup>
HWY_INLINE void add_rows(const float* partial, float* y) {
  for (int c = 0; c < kGroup; ++c) {
    float sum = partial[c];
    for (size_t i = kGroup; i < kGroupValues; i += kGroup) sum += partial[i + c];
    y[c] = sum;
  }
}

template <class T, class Index, int kCols, int kGroup>
HWY_NOINLINE void few_column_transposed_tile(const FewColumnTile<T, Index>& t) {
  constexpr int kVectors = kGroupVectors;
  constexpr int kGroups = kGroupsAtOnce<kGroup>;
  constexpr int kStripRows = kGroupValues / kGroup;
  const Floats d;
  hn::Vec<Floats> sum[kGroups][kVectors][kCols];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) sum[g][v][c] = hn::Zero(d);
    }
  }
  const uint32_t strips = t.block_size / kStripRows;
  const size_t strip_values = size_t{t.block_size} * kStripRows;
  for (size_t i = 0; i < t.blocks; ++i) {
    const T* values = t.values_of(i);
    const T* next = t.values_ahead_of(i);
    const float* x = t.x + size_t{t.columns[i]} * strips * kCols * kGroupValues;
    for (uint32_t s = 0; s < strips; ++s) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        hn::Vec<Floats> xs[kCols];
#pragma GCC unroll 8
        for (int c = 0; c < kCols; ++c) xs[c] = hn::LoadU(d, x + c * kGroupValues + v * kLanes);
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) {
          if (v == 0) hwy::Prefetch(next + g * kGroupValues);
          const auto ws = load_values(d, values + g * kGroupValues + v * kLanes);
#pragma GCC unroll 8
          for (int c = 0; c < kCols; ++c) accumulate(ws, xs[c], sum[g][v][c]);
        }
      }
      values += strip_values;
      next += strip_values;
      x += kCols * kGroupValues;
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < kCols; ++c) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      HWY_ALIGN float partial[kGroupValues];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) hn::Store(sum[g][v][c], d, partial + v * kLanes);
      add_rows<kGroup>(partial, t.y + c * kChunkRows + g * kGroup);
    }
  }
}

// The micro-kernels for 1 to kTransposedTileCols columns.
template <class T, class Index, int kGroup, int... kCol>
FewColumnTileFunction<T, Index> few_column_transposed_function(uint32_t cols,
                                                               std::integer_sequence<int, kCol...>) {
  static constexpr FewColumnTileFunction<T, Index> kTable[] = {
      few_column_transposed_tile<T, Index, kCol + 1, kGroup>...};
  return kTable[cols - 1];
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
