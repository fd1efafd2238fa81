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

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DotFloats = hn::ScalableTag<float>;
using DotVec = hn::Vec<DotFloats>;
inline constexpr size_t kDotLanes = hn::MaxLanes(DotFloats());

// The reduction prefers blends, which run on more ports than shuffles.

// In each 128-bit block: the sums of a's halves, followed by those of b's.
HWY_INLINE DotVec add_within_blocks(DotVec a, DotVec b) {
  const DotFloats d;
  const hn::RepartitionToWide<DotFloats> wide;
  const hn::Repartition<uint8_t, DotFloats> bytes;
  const auto unpaired = hn::OddEven(hn::BitCast(wide, b), hn::BitCast(wide, a));
  const auto across = hn::CombineShiftRightBytes<8>(bytes, hn::BitCast(bytes, b), hn::BitCast(bytes, a));
  return hn::Add(hn::BitCast(d, unpaired), hn::BitCast(d, across));
}

// Sums of neighbouring lanes: a's in even lanes, b's in odd ones.
HWY_INLINE DotVec add_neighbours(DotVec a, DotVec b) {
  return hn::Add(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
}

// In each 128-bit block the sums of that block of four vectors.
HWY_INLINE DotVec totals_in_blocks(const DotVec* v) {
  return add_neighbours(add_within_blocks(v[0], v[2]), add_within_blocks(v[1], v[3]));
}

// The sum of the halves of `a`, followed by that of `b`.
HWY_INLINE DotVec add_halves(DotVec a, DotVec b) {
  const DotFloats d;
  return hn::Add(hn::ConcatUpperLower(d, b, a), hn::ConcatLowerUpper(d, b, a));
}

// Block q: the sum of the 128-bit blocks of v[q], for as many vectors as one has blocks.
inline constexpr size_t kDotBlocks = kDotLanes / 4;
HWY_INLINE DotVec add_blocks(const DotVec* v) {
  if constexpr (kDotBlocks == 1) {
    return v[0];
  } else if constexpr (kDotBlocks == 2) {
    return add_halves(v[0], v[1]);
  } else {
    const auto even = add_halves(v[0], v[2]);
    const auto odd = add_halves(v[1], v[3]);
    return hn::Add(hn::OddEvenBlocks(odd, even), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(even, odd)));
  }
}

// Lane i: the sum of the lanes of v[i], for as many vectors as one has lanes.
HWY_INLINE DotVec totals_of(const DotVec* v) {
  DotVec blocks[kDotBlocks];
#pragma GCC unroll 4
  for (size_t q = 0; q < kDotBlocks; ++q) blocks[q] = totals_in_blocks(v + 4 * q);
  return add_blocks(blocks);
}

// Splits the columns of rows like the given one: a partial vector up to a cache line, whole ones, and a
// partial one.
struct DotSplit {
  uint32_t head;   // columns before the first whole vector
  uint32_t whole;  // in whole vectors
  uint32_t tail;

  // For rows aligned like `row`, of n columns.
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

// The sums of a micro-tile; that of rows r of y and c of x is at Slot::at(r, c).
template <int kRows, int kCols, class Slot>
struct DotSums {
  static constexpr int kSums = kRows * kCols;
  static_assert(kSums % kDotLanes == 0);
  DotVec sum[kSums];

  // An implicit one would be compiled without the instruction set's options.
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

// Computes the dot products of a micro-tile's rows into totals, one at each of its slots; meanwhile
// prefetches the first kNext of the later rows of X, and the far one if kFar.
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
