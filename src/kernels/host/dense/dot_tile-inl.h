// Dot products along output features: columns of W, which lie in its panels, times a few rows of dY.
#if defined(TESSERA_DENSE_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_DOT_TILE_INL_H_
#undef TESSERA_DENSE_DOT_TILE_INL_H_
#else
#define TESSERA_DENSE_DOT_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/lane_totals-inl.h"
#include "kernels/host/dense/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Columns of W and rows of dY of a micro-tile.
inline constexpr uint32_t kDotColumns = 4;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET_IS_NEON
inline constexpr uint32_t kDotRows = 4;
#else
inline constexpr uint32_t kDotRows = 2;
#endif

// Columns of W in consecutive panels, and copied rows of dY, with zeros after their last term.
struct DotTile {
  const float* columns;
  size_t panel_step;
  const float* rows;
  size_t panels;
  bool adds;
  float* sums;  // [row][kDenseSumStep]
};

template <uint32_t kRows, uint32_t kColumns>
HWY_NOINLINE void dot_tile(const DotTile& tile) {
  constexpr size_t kPanelsAhead = 4;
  const PanelFloats d;
  constexpr uint32_t kSums = kDotRows * kDotColumns;
  static_assert(kSums % kPanelLanes == 0);
  hn::Vec<PanelFloats> sum[kSums];
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kSums; ++i) sum[i] = hn::Zero(d);
  const float* columns = tile.columns;
  const float* rows = tile.rows;
  const size_t panel_step = tile.panel_step, ahead = kPanelsAhead * panel_step;
  for (size_t p = tile.panels; p > 0; --p, columns += panel_step, rows += kPanelRows) {
#pragma GCC unroll 4
    for (uint32_t c = 0; c < kColumns; ++c) hwy::Prefetch(columns + ahead + c * kPanelRows);
#pragma GCC unroll 4
    for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
      hn::Vec<PanelFloats> column[kColumns];
#pragma GCC unroll 4
      for (uint32_t c = 0; c < kColumns; ++c) column[c] = hn::LoadU(d, columns + c * kPanelRows + lane);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kRows; ++r) {
        const auto row = hn::LoadU(d, rows + r * kDenseRowStep + lane);
#pragma GCC unroll 4
        for (uint32_t c = 0; c < kColumns; ++c)
          sum[r * kDotColumns + c] = hn::MulAdd(column[c], row, sum[r * kDotColumns + c]);
      }
    }
  }
  HWY_ALIGN float totals[kSums];
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kSums; i += kPanelLanes) hn::Store(totals_of(sum + i), d, totals + i);
  for (uint32_t r = 0; r < kRows; ++r)
    for (uint32_t c = 0; c < kColumns; ++c) {
      float& to = tile.sums[r * kDenseSumStep + c];
      to = tile.adds ? to + totals[r * kDotColumns + c] : totals[r * kDotColumns + c];
    }
}

template <uint32_t kRows>
void dot_columns(DotTile tile, uint32_t cols) {
  uint32_t c = 0;
  for (; c + kDotColumns <= cols; c += kDotColumns) {
    dot_tile<kRows, kDotColumns>(tile);
    tile.columns += size_t{kDotColumns} * kPanelRows;
    tile.sums += kDotColumns;
  }
  for (; c < cols; ++c, tile.columns += kPanelRows, ++tile.sums) dot_tile<kRows, 1>(tile);
}

// The same for any number of rows and columns.
inline void run_dot_tiles(DotTile tile, uint32_t rows, uint32_t cols) {
  for (uint32_t r = 0; r < rows; r += kDotRows) {
    switch (std::min(kDotRows, rows - r)) {
      case 1: dot_columns<1>(tile, cols); break;
      case 2: dot_columns<2>(tile, cols); break;
      case 3: dot_columns<std::min(3U, kDotRows)>(tile, cols); break;
      default: dot_columns<kDotRows>(tile, cols); break;
    }
    tile.rows += kDotRows * size_t{kDenseRowStep};
    tile.sums += kDotRows * size_t{kDenseSumStep};
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
