// The micro-kernel of all dense products: panels of vectors times broadcast factors.
#if defined(TESSERA_DENSE_MICRO_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_MICRO_TILE_INL_H_
#undef TESSERA_DENSE_MICRO_TILE_INL_H_
#else
#define TESSERA_DENSE_MICRO_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/common/convert-inl.h"
#include "kernels/host/dense/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PanelFloats = hn::CappedTag<float, kPanelRows>;
inline constexpr size_t kPanelLanes = hn::MaxLanes(PanelFloats());
inline constexpr int kPanelVectors = static_cast<int>(kPanelRows / kPanelLanes);

// The most sums that registers hold beside the panels' vectors and a factor. Few rows of a batch leave
// registers for more panels, whose sums hide each other's latency. The L2 cache holds a part of the columns
// of dW's second factor.
#if HWY_TARGET == HWY_AVX3
inline constexpr uint32_t kTilePanels = 2, kTileFactors = 12, kFewRows = 4, kFewRowPanels = 4;
inline constexpr uint32_t kPartColumns = kDenseColumns;
#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET_IS_NEON
inline constexpr uint32_t kTilePanels = 1, kTileFactors = 6, kFewRows = 2, kFewRowPanels = 2;
inline constexpr uint32_t kPartColumns = kDenseColumns / 2;
#else
inline constexpr uint32_t kTilePanels = 1, kTileFactors = 2, kFewRows = 2, kFewRowPanels = 1;
inline constexpr uint32_t kPartColumns = kDenseColumns / 2;
#endif
// Whether only the first of several micro-tiles of a panel prefetches: the L1 cache holds a panel's part of a
// pass, and no other beside it.
inline constexpr bool kPrefetchesOnce = kTilePanels == 1;

// Consecutive terms whose factors are tile.factor_step apart: the first, their number, and the offset of the
// first one's factors.
struct TermRun {
  uint32_t first;
  uint32_t count;
  size_t offset;
};

// sums[p][i] = Σ panels[p][t] · factors[i][t] over t < depth, added to the previous sums if `adds`.
template <class T>
struct MicroTile {
  const T* panels;  // kPanelRows values for each t
  size_t panel_step;
  const float* factors;
  // Distance of consecutive t; for factors in panels, of their panels; for factors under a window, of its
  // positions.
  size_t factor_step;
  size_t depth;
  float* sums;
  size_t sums_step;  // from panel to panel
  bool adds;
  const T* next;                    // panels to prefetch
  size_t row_step = kDenseSumStep;  // from sum to sum, if factors are rows of a batch
  // For factors under a window: the copied rows, and the first term.
  const SeenRows* seen = nullptr;
  uint32_t first_term = 0;
  // For factors in runs: these, with `depth` terms in total; the distance of consecutive terms in a panel;
  // and what to prefetch into the L2 cache: the factors `ahead` of each term's, and from `next` on elements
  // `next_step` apart.
  const TermRun* runs = nullptr;
  size_t term_step = kPanelRows;
  size_t ahead = 0;
  size_t next_step = 0;
};

// Distance of factors i and i + 1, in floats: neighbours in a row of a batch, in copied rows, or in panels,
// where kPanelRows terms follow one another; kSeen: tile.factor_step; kInRuns: neighbours in rows, of which
// tile.runs are read.
inline constexpr size_t kAlongRow = 1, kAcrossRows = kDenseRowStep, kInPanels = kPanelRows, kSeen = 0,
                        kInRuns = 2;

// Distance of consecutive factors' sums, in floats.
template <size_t kStride, class T>
constexpr size_t sum_step(const MicroTile<T>& tile) {
  return kStride == kAcrossRows || kStride == kSeen ? tile.row_step : kPanelRows;
}

template <int kPanels, int kFactors, size_t kStride, class T>
HWY_NOINLINE void micro_tile(const MicroTile<T>& tile) {
  const PanelFloats d;
  constexpr int kVectors = kPanels * kPanelVectors;
  hn::Vec<PanelFloats> sum[kVectors][kFactors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
    for (int i = 0; i < kFactors; ++i) sum[v][i] = hn::Zero(d);
  }
  // Copies: stores of floats might change the members.
  float* const sums = tile.sums;
  const size_t sums_step = tile.sums_step, step = sum_step<kStride>(tile);
  const auto offset = [](int v) { return v % kPanelVectors * kPanelLanes; };
  if (tile.adds) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
      for (int i = 0; i < kFactors; ++i)
        sum[v][i] = hn::LoadU(d, sums + v / kPanelVectors * sums_step + offset(v) + i * step);
    }
  }
  const T* panels = tile.panels;
  const float* factors = tile.factors;
  const size_t panel_step = tile.panel_step;
  const size_t factor_step = kStride == kAlongRow || kStride == kInRuns ? tile.factor_step : 1;
  const size_t term_step = kStride == kInRuns ? tile.term_step : kPanelRows;
  const size_t position_step = tile.factor_step;
  const T* next = tile.next;
  const TermRun* runs = tile.runs;
  const size_t ahead = tile.ahead + kFactors - 1, next_step = tile.next_step;
  // Panels of factors are too far apart for hardware prefetchers.
  const size_t jump = tile.factor_step - kPanelRows;
  const float* next_factors = factors + 2 * tile.factor_step;
  uint32_t rest = kPanelRows;  // terms in the panel of factors
  uint32_t term = tile.first_term;
  for (size_t left = tile.depth, run; left > 0; left -= run, term += run) {
    run = left;
    // Every third factor: the others are one and two steps away.
    const float* thirds[(kFactors + 2) / 3];
    if constexpr (kStride == kSeen) {
      run = std::min<size_t>(left, tile.seen->neighbours(term));
      const float* first = tile.factors + tile.seen->offset(term);
#pragma GCC unroll 4
      for (int i = 0; i < (kFactors + 2) / 3; ++i) thirds[i] = first + 3 * i * position_step;
    }
    if constexpr (kStride == kInRuns) {
      run = runs->count;
      panels = tile.panels + runs->first * term_step;
      factors = tile.factors + runs->offset;
      ++runs;
    }
    for (size_t t = run; t > 0; --t) {
      hn::Vec<PanelFloats> w[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v)
        w[v] = load_f32(d, panels + v / kPanelVectors * panel_step + offset(v));
      if constexpr (kStride == kAcrossRows || kStride == kSeen) {
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) hwy::Prefetch(next + p * panel_step);
        next += kPanelRows;
      }
      if constexpr (kStride == kInPanels) {
        hwy::Prefetch(next_factors);
        next_factors += kPanelRows;
      }
      // A single vector of a panel leaves no loads to spare.
      if constexpr (kStride == kInRuns && kVectors > 1) {
        __builtin_prefetch(factors + ahead, 0, 2);
        __builtin_prefetch(next, 0, 2);
        next += next_step;
      }
#pragma GCC unroll 16
      for (int i = 0; i < kFactors; ++i) {
        constexpr size_t kNext = kStride == kInRuns ? kAlongRow : kStride;
        const float number = kStride == kSeen ? thirds[i / 3][i % 3 * position_step] : factors[i * kNext];
        const auto factor = hn::Set(d, number);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[v][i] = hn::MulAdd(w[v], factor, sum[v][i]);
      }
      panels += term_step;
      if constexpr (kStride == kSeen) {
#pragma GCC unroll 4
        for (int i = 0; i < (kFactors + 2) / 3; ++i) ++thirds[i];
      } else {
        factors += factor_step;
      }
      if (kStride == kInPanels && --rest == 0) {
        rest = kPanelRows;
        factors += jump;
        next_factors = factors + 2 * tile.factor_step;
      }
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
    for (int i = 0; i < kFactors; ++i)
      hn::StoreU(sum[v][i], d, sums + v / kPanelVectors * sums_step + offset(v) + i * step);
  }
}

template <class T>
using MicroTileFunction = void (*)(const MicroTile<T>&);

template <int kPanels, size_t kStride, class T, size_t... i>
constexpr std::array<MicroTileFunction<T>, sizeof...(i)> micro_tiles(std::index_sequence<i...>) {
  return {micro_tile<kPanels, static_cast<int>(i) + 1, kStride, T>...};
}

// 0 < panels ≤ kTilePanels and 0 < factors ≤ kTileFactors.
template <size_t kStride, class T>
void run_micro_tile(const MicroTile<T>& tile, uint32_t panels, uint32_t factors) {
  constexpr auto kCounts = std::make_index_sequence<kTileFactors>();
  static constexpr auto kOne = micro_tiles<1, kStride, T>(kCounts);
  static constexpr auto kAll = micro_tiles<kTilePanels, kStride, T>(kCounts);
  (panels == 1 ? kOne : kAll)[factors - 1](tile);
}

// Runs one micro-tile for kFewRowPanels panels and 0 < factors ≤ kFewRows.
template <size_t kStride, class T>
void run_micro_tile_of_few(const MicroTile<T>& tile, uint32_t factors) {
  static constexpr auto kFew = micro_tiles<kFewRowPanels, kStride, T>(std::make_index_sequence<kFewRows>());
  kFew[factors - 1](tile);
}

// Fetches the rows of the result that a micro-tile writes at its end: each part is too short for hardware
// prefetchers.
template <class T>
void prefetch_result(const MicroTile<T>& tile, uint32_t panels, uint32_t rows) {
  constexpr uint32_t kLineValues = 64 / sizeof(float);
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t i = 0; i < panels * kPanelRows; i += kLineValues)
      __builtin_prefetch(tile.sums + r * tile.row_step + i, 1);
}

// Runs micro-tiles for up to kDensePanels panels and any number of factors. finish(begin, count) takes
// factors whose sums are complete.
template <size_t kStride, class T, class Finish>
void run_micro_tiles(const MicroTile<T>& whole, uint32_t panels, uint32_t factors, const Finish& finish) {
  MicroTile<T> tile = whole;
  const TileSplit split{factors, kTileFactors};
  for (uint32_t p = 0; p < panels; p += kTilePanels) {
    tile.panels = whole.panels + p * tile.panel_step;
    tile.next = whole.next + p * tile.panel_step;
    for (uint32_t i = 0; i < split.tiles(); ++i) {
      const uint32_t begin = split.begin(i), count = split.begin(i + 1) - begin;
      tile.factors = whole.factors + begin * (kStride == kSeen ? tile.factor_step : kStride);
      tile.sums = whole.sums + p * tile.sums_step + begin * sum_step<kStride>(tile);
      if (tile.row_step != kDenseSumStep) prefetch_result(tile, std::min(kTilePanels, panels - p), count);
      run_micro_tile<kStride>(tile, std::min(kTilePanels, panels - p), count);
      if (kPrefetchesOnce) tile.next = tile.panels;
      if (p + kTilePanels >= panels) finish(begin, count);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
