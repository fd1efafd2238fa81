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

// Number of columns of W of a micro-tile with `rows` rows of dY: the most that registers hold.
constexpr uint32_t dot_columns_of(uint32_t rows) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET_IS_NEON
  return rows > 0 ? 4 : 0;
#else
  return rows <= 2 ? 4 : 2;
#endif
}

// Columns of W in consecutive panels, and copied rows of dY, with zeros after their last term.
template <class T>
struct DotTile {
  const T* columns;
  size_t panel_step;
  const float* rows;
  size_t panels;
  bool adds;
  float* sums;  // [row][kDenseSumStep]
};

template <uint32_t kRows, uint32_t kColumns, class T>
HWY_NOINLINE void dot_tile(const DotTile<T>& tile) {
  constexpr size_t kPanelsAhead = 4;
  const PanelFloats d;
  constexpr uint32_t kSums = round_up(kRows * kColumns, kPanelLanes);
  hn::Vec<PanelFloats> sum[kSums];
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kSums; ++i) sum[i] = hn::Zero(d);
  const T* columns = tile.columns;
  const float* rows = tile.rows;
  const size_t panel_step = tile.panel_step, ahead = kPanelsAhead * panel_step;
  for (size_t p = tile.panels; p > 0; --p, columns += panel_step, rows += kPanelRows) {
#pragma GCC unroll 4
    for (uint32_t c = 0; c < kColumns; ++c) hwy::Prefetch(columns + ahead + c * kPanelRows);
#pragma GCC unroll 4
    for (size_t lane = 0; lane < kPanelRows; lane += kPanelLanes) {
      hn::Vec<PanelFloats> column[kColumns];
#pragma GCC unroll 4
      for (uint32_t c = 0; c < kColumns; ++c) column[c] = load_f32(d, columns + c * kPanelRows + lane);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kRows; ++r) {
        const auto row = hn::LoadU(d, rows + r * kDenseRowStep + lane);
#pragma GCC unroll 4
        for (uint32_t c = 0; c < kColumns; ++c)
          sum[r * kColumns + c] = hn::MulAdd(column[c], row, sum[r * kColumns + c]);
      }
    }
  }
  HWY_ALIGN float totals[kSums];
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kSums; i += kPanelLanes) hn::Store(totals_of(sum + i), d, totals + i);
  for (uint32_t r = 0; r < kRows; ++r)
    for (uint32_t c = 0; c < kColumns; ++c) {
      float& to = tile.sums[r * kDenseSumStep + c];
      to = tile.adds ? to + totals[r * kColumns + c] : totals[r * kColumns + c];
    }
}

template <uint32_t kRows, class T>
void dot_columns(DotTile<T> tile, uint32_t cols) {
  constexpr uint32_t kColumns = dot_columns_of(kRows);
  uint32_t c = 0;
  for (; c + kColumns <= cols; c += kColumns) {
    dot_tile<kRows, kColumns>(tile);
    tile.columns += size_t{kColumns} * kPanelRows;
    tile.sums += kColumns;
  }
  for (; c < cols; ++c, tile.columns += kPanelRows, ++tile.sums) dot_tile<kRows, 1>(tile);
}

// 0 < rows ≤ kMostTileRows.
inline constexpr uint32_t kMostTileRows = 4;
template <class T>
void run_dot_columns(const DotTile<T>& tile, uint32_t rows, uint32_t cols) {
  switch (rows) {
    case 1: return dot_columns<1>(tile, cols);
    case 2: return dot_columns<2>(tile, cols);
    case 3: return dot_columns<3>(tile, cols);
    default: return dot_columns<4>(tile, cols);
  }
}

// Any number of rows: they take the same columns in turn, which stay in the L1 cache.
template <class T>
void run_dot_tiles(const DotTile<T>& whole, uint32_t rows, uint32_t cols) {
  constexpr uint32_t kColumnsAtOnce = 8;
  const TileSplit split{rows, kMostTileRows};
  for (uint32_t c = 0; c < cols; c += kColumnsAtOnce)
    for (uint32_t i = 0; i < split.tiles(); ++i) {
      DotTile<T> tile = whole;
      tile.columns += size_t{c} * kPanelRows;
      tile.rows += size_t{split.begin(i)} * kDenseRowStep;
      tile.sums += size_t{split.begin(i)} * kDenseSumStep + c;
      run_dot_columns(tile, split.begin(i + 1) - split.begin(i), std::min(kColumnsAtOnce, cols - c));
    }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
