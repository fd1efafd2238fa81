// Dot products of rows: a micro-tile of rows × rows in registers; each sum is a vector that is reduced at the
// end.
#if defined(TESSERA_SDDMM_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SDDMM_DOTS_INL_H_
#undef TESSERA_SDDMM_DOTS_INL_H_
#else
#define TESSERA_SDDMM_DOTS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/accumulate-inl.h"
#include "kernels/common/lane_totals-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Splits the columns of rows like the given one: a partial vector up to a cache line, whole ones, and a
// partial one.
struct DotSplit {
  uint32_t head;   // columns before the first whole vector
  uint32_t whole;  // number of columns in whole vectors
  uint32_t tail;

  // The split of n columns for rows aligned like `row`.
  static DotSplit of(const float* row, uint32_t n) {
    const auto past = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) / sizeof(float) % kDotLanes);
    const uint32_t head = std::min(n, past == 0 ? 0 : static_cast<uint32_t>(kDotLanes) - past);
    const auto tail = static_cast<uint32_t>((n - head) % kDotLanes);
    return {head, n - head - tail, tail};
  }
};

// The rows of a micro-tile, and what it prefetches.
template <int kRows, int kCols>
struct DotRows {
  const float* y[kRows];
  const float* x[kCols];
  const float* next[kCols];  // later rows of X, into the L1 cache
  const float* far;          // a later row, into the L2 cache
};

// The sums of a micro-tile; the sum of row r of y and row c of x is at Slot::at(r, c).
template <int kRows, int kCols, class Slot>
struct DotSums {
  static constexpr int kSums = kRows * kCols;
  static_assert(kSums % kDotLanes == 0);
  DotVec sum[kSums];

  // An implicit constructor would be compiled without the instruction set's options.
  HWY_INLINE DotSums() {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sum[s] = hn::Zero(DotFloats());
  }

  // Adds the products of vectors at column i, which `load` loads from a row.
  template <class Load>
  HWY_INLINE void add(const DotRows<kRows, kCols>& rows, size_t i, const Load& load) {
    DotVec x[kCols];
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) x[c] = load(rows.x[c] + i);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const DotVec y = load(rows.y[r] + i);
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) accumulate(y, x[c], sum[Slot::at(r, c)]);
    }
  }

  HWY_INLINE void store_totals(float* totals) const {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; s += static_cast<int>(kDotLanes))
      hn::Store(totals_of(sum + s), DotFloats(), totals + s);
  }
};

struct LoadAll {
  HWY_INLINE DotVec operator()(const float* from) const { return hn::LoadU(DotFloats(), from); }
};

struct LoadSome {
  hn::Mask<DotFloats> some;

  HWY_INLINE explicit LoadSome(uint32_t count) : some(hn::FirstN(DotFloats(), count)) {}
  HWY_INLINE DotVec operator()(const float* from) const { return hn::MaskedLoad(some, DotFloats(), from); }
};

// Computes the dot products of a micro-tile's rows into totals, one per slot; meanwhile prefetches the first
// kNext of the later rows of X, and the far row if kFar.
template <int kRows, int kCols, class Slot, int kNext, bool kFar>
HWY_NOINLINE void dot_tile(const DotRows<kRows, kCols>& rows, const DotSplit& schedule, float* totals) {
  DotSums<kRows, kCols, Slot> sums;
  if (schedule.head > 0) sums.add(rows, 0, LoadSome(schedule.head));
  const size_t end = size_t{schedule.head} + schedule.whole;
  for (size_t i = schedule.head; i < end; i += kDotLanes) {
#pragma GCC unroll 4
    for (int c = 0; c < kNext; ++c) hwy::Prefetch(rows.next[c] + i);
    if constexpr (kFar) __builtin_prefetch(rows.far + i, 0, 2);
    sums.add(rows, i, LoadAll());
  }
  if (schedule.tail > 0) sums.add(rows, end, LoadSome(schedule.tail));
  sums.store_totals(totals);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
