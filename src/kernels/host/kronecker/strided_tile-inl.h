// The micro-kernel of factors with large strides: groups of neighbouring features of samples in rows, one
// group per lane.
#if defined(TESSERA_KRONECKER_STRIDED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KRONECKER_STRIDED_TILE_INL_H_
#undef TESSERA_KRONECKER_STRIDED_TILE_INL_H_
#else
#define TESSERA_KRONECKER_STRIDED_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/common/sample_lanes-inl.h"
#include "kernels/common/splits.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET_IS_NEON
inline constexpr uint32_t kStridedRows = 6;
#else
inline constexpr uint32_t kStridedRows = 3;
#endif
inline constexpr uint32_t kStridedCols = 4;

// Vectors that follow one another by a stride for each row (or column) of a micro-tile, and for each term.
struct StridedVectors {
  const float* data;
  size_t stride;
  size_t step;
};

// sums[i][j] = Σ a[i][t] ∘ b[j][t] over t < terms, lane by lane.
struct StridedProduct {
  StridedVectors a;
  StridedVectors b;
  size_t terms;
  float* sums;
  size_t row_step;
  size_t col_step;
};

template <int kRows, int kCols, bool kPartial>
HWY_NOINLINE void strided_tile(const StridedProduct& p, size_t lanes) {
  const Floats d;
  hn::Vec<Floats> sum[kRows][kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) sum[i][j] = hn::Zero(d);
  }
  const auto load = [&](const float* from)
                        HWY_ATTR { return kPartial ? load_lanes(from, lanes) : hn::LoadU(d, from); };
  const float *a = p.a.data, *b = p.b.data;
  const float* half = a + 3 * p.a.stride;  // addressing modes scale a stride by 1 and 2
  const size_t a_stride = p.a.stride, a_step = p.a.step, b_stride = p.b.stride, b_step = p.b.step;
  for (size_t t = p.terms; t > 0; --t, a += a_step, half += a_step, b += b_step) {
    hn::Vec<Floats> row[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) row[i] = load((i < 3 ? a : half) + i % 3 * a_stride);
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      const auto col = load(b + j * b_stride);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = hn::MulAdd(row[i], col, sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      float* to = p.sums + i * p.row_step + j * p.col_step;
      kPartial ? store_lanes(sum[i][j], to, lanes) : hn::StoreU(sum[i][j], d, to);
    }
  }
}

using StridedTileFunction = void (*)(const StridedProduct&, size_t);

template <bool kPartial, size_t... i>
constexpr std::array<StridedTileFunction, sizeof...(i)> strided_tiles(std::index_sequence<i...>) {
  return {strided_tile<static_cast<int>(i / kStridedCols) + 1, static_cast<int>(i % kStridedCols) + 1,
                       kPartial>...};
}

// Runs micro-tiles for any numbers of rows and columns.
inline void run_strided_product(StridedProduct p, uint32_t rows, uint32_t cols, size_t lanes) {
  constexpr auto kSizes = std::make_index_sequence<kStridedRows * kStridedCols>();
  static constexpr auto kWhole = strided_tiles<false>(kSizes), kPartial = strided_tiles<true>(kSizes);
  const auto& tiles = lanes == kLanes ? kWhole : kPartial;
  const StridedProduct whole = p;
  const TileSplit row_split{rows, kStridedRows}, col_split{cols, kStridedCols};
  for (uint32_t i = 0; i < row_split.tiles(); ++i) {
    const uint32_t row = row_split.begin(i), row_count = row_split.begin(i + 1) - row;
    p.a.data = whole.a.data + row * p.a.stride;
    for (uint32_t j = 0; j < col_split.tiles(); ++j) {
      const uint32_t col = col_split.begin(j), col_count = col_split.begin(j + 1) - col;
      p.b.data = whole.b.data + col * p.b.stride;
      p.sums = whole.sums + row * p.row_step + col * p.col_step;
      tiles[(row_count - 1) * kStridedCols + col_count - 1](p, lanes);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
