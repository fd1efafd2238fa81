// Vectors times broadcast factors: the micro-kernel of groups of Kronecker-sparse factors.
#if defined(TESSERA_KRONECKER_BROADCAST_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KRONECKER_BROADCAST_TILE_INL_H_
#undef TESSERA_KRONECKER_BROADCAST_TILE_INL_H_
#else
#define TESSERA_KRONECKER_BROADCAST_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/common/sample_lanes-inl.h"
#include "kernels/common/splits.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The most sums that registers hold beside the vectors and a factor.
inline constexpr uint32_t kBroadcastVectors = 2;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET_IS_NEON
inline constexpr uint32_t kBroadcastRows = 12;
#else
inline constexpr uint32_t kBroadcastRows = 6;
#endif
inline constexpr uint32_t kBroadcastLanes = kBroadcastVectors * static_cast<uint32_t>(kLanes);

// sums[i][lane] = Σ vectors[t][lane] · factors[i][t] over t < terms, added to the previous sums if `adds`.
struct BroadcastProduct {
  const float* vectors;
  size_t vector_step;  // from term to term
  const float* factors;
  size_t factor_stride;  // from row to row
  size_t factor_step;    // from term to term
  size_t terms;
  float* sums;
  size_t sum_step;  // from row to row
  bool adds = false;
};

// A micro-tile: the last vector has `last` lanes.
template <int kRows, int kVectors, bool kPartial>
HWY_NOINLINE void broadcast_tile(const BroadcastProduct& p, size_t last) {
  const Floats d;
  // Three rows per pointer: addressing modes scale a stride by 1 and 2.
  constexpr int kPointers = (kRows + 2) / 3;
  hn::Vec<Floats> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(d);
  }
  const auto load = [&](const float* from, int v) HWY_ATTR {
    return kPartial && v == kVectors - 1 ? load_lanes(from + v * kLanes, last)
                                         : hn::LoadU(d, from + v * kLanes);
  };
  float* const sums = p.sums;
  const size_t sum_step = p.sum_step;
  if (p.adds) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = load(sums + i * sum_step, v);
    }
  }
  const float* factors[kPointers];
  const size_t stride = p.factor_stride, step = p.factor_step, vector_step = p.vector_step;
#pragma GCC unroll 4
  for (int i = 0; i < kPointers; ++i) factors[i] = p.factors + 3 * i * stride;
  const float* vectors = p.vectors;
  for (size_t t = p.terms; t > 0; --t, vectors += vector_step) {
    hn::Vec<Floats> x[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) x[v] = load(vectors, v);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto factor = hn::Set(d, factors[i / 3][i % 3 * stride]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(x[v], factor, sum[i][v]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) factors[i] += step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = sums + i * sum_step + v * kLanes;
      kPartial&& v == kVectors - 1 ? store_lanes(sum[i][v], to, last) : hn::StoreU(sum[i][v], d, to);
    }
  }
}

using BroadcastTileFunction = void (*)(const BroadcastProduct&, size_t);

template <int kVectors, bool kPartial, size_t... i>
constexpr std::array<BroadcastTileFunction, sizeof...(i)> broadcast_tiles(std::index_sequence<i...>) {
  return {broadcast_tile<static_cast<int>(i) + 1, kVectors, kPartial>...};
}

// Runs micro-tiles for any numbers of rows and lanes.
inline void run_broadcast_product(BroadcastProduct p, uint32_t rows, uint32_t lanes) {
  constexpr auto kRows = std::make_index_sequence<kBroadcastRows>();
  static constexpr auto kOne = broadcast_tiles<1, false>(kRows),
                        kOnePartial = broadcast_tiles<1, true>(kRows);
  static constexpr auto kTwo = broadcast_tiles<2, false>(kRows),
                        kTwoPartial = broadcast_tiles<2, true>(kRows);
  const BroadcastProduct whole = p;
  const TileSplit split{rows, kBroadcastRows};
  for (uint32_t lane = 0; lane < lanes; lane += kBroadcastLanes) {
    const uint32_t count = std::min(kBroadcastLanes, lanes - lane);
    const size_t last = (count - 1) % kLanes + 1;
    const auto& tiles =
        count > kLanes ? (last < kLanes ? kTwoPartial : kTwo) : (last < kLanes ? kOnePartial : kOne);
    p.vectors = whole.vectors + lane;
    for (uint32_t i = 0; i < split.tiles(); ++i) {
      const uint32_t begin = split.begin(i);
      p.factors = whole.factors + begin * p.factor_stride;
      p.sums = whole.sums + begin * p.sum_step + lane;
      tiles[split.begin(i + 1) - begin - 1](p, last);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
