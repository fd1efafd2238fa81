// Sums of the lanes of many vectors at once.
#if defined(TESSERA_KERNELS_LANE_TOTALS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_LANE_TOTALS_INL_H_
#undef TESSERA_KERNELS_LANE_TOTALS_INL_H_
#else
#define TESSERA_KERNELS_LANE_TOTALS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DotFloats = hn::ScalableTag<float>;
using DotVec = hn::Vec<DotFloats>;
inline constexpr size_t kDotLanes = hn::MaxLanes(DotFloats());

// The reductions below prefer blends, which run on more ports than shuffles.

// In each 128-bit block: the sums of a's halves, followed by the sums of b's halves.
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

// In each 128-bit block: the four sums of that block of four vectors.
HWY_INLINE DotVec totals_in_blocks(const DotVec* v) {
  return add_neighbours(add_within_blocks(v[0], v[2]), add_within_blocks(v[1], v[3]));
}

// The sum of the halves of `a`, followed by the sum of the halves of `b`.
HWY_INLINE DotVec add_halves(DotVec a, DotVec b) {
  const DotFloats d;
  return hn::Add(hn::ConcatUpperLower(d, b, a), hn::ConcatLowerUpper(d, b, a));
}

// Block q: the sum of the 128-bit blocks of v[q], for kDotBlocks vectors.
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

// Lane i: the sum of the lanes of v[i], for kDotLanes vectors.
HWY_INLINE DotVec totals_of(const DotVec* v) {
  DotVec blocks[kDotBlocks];
#pragma GCC unroll 4
  for (size_t q = 0; q < kDotBlocks; ++q) blocks[q] = totals_in_blocks(v + 4 * q);
  return add_blocks(blocks);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
