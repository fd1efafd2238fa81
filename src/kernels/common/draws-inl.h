// The random numbers of base::philox() on vectors.
#if defined(TESSERA_KERNELS_DRAWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_DRAWS_INL_H_
#undef TESSERA_KERNELS_DRAWS_INL_H_
#else
#define TESSERA_KERNELS_DRAWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/draws.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Counters = hn::ScalableTag<uint64_t>;
using Counter = hn::Vec<Counters>;

// Number of words that are drawn at once; a buffer has space for one more vector.
inline constexpr size_t kDrawnWords = 512;
inline constexpr size_t kDrawnSlack = 64;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Counter times(Counter a, uint32_t factor) {
  return hn::Set(Counters(), uint64_t{static_cast<uint32_t>(hn::GetLane(a))} * factor);
}
HWY_INLINE void store_pairs(Counter a, Counter b, uint64_t* to) {
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
}
#else
// The product of a factor with the lower halves of numbers.
HWY_INLINE Counter times(Counter a, uint32_t factor) {
  const hn::Repartition<uint32_t, Counters> halves;
  return hn::MulEven(hn::BitCast(halves, a), hn::Set(halves, factor));
}
HWY_INLINE void store_pairs(Counter a, Counter b, uint64_t* to) {
  hn::StoreInterleaved2(a, b, Counters(), to);
}
#endif

// Draws a block of four words in each lane. Only the lower half of each number counts.
HWY_INLINE void draw_blocks(const Draws& draws, uint64_t block, uint64_t* words) {
  const Counters d;
  Counter c0 = hn::Add(hn::Set(d, block), hn::Iota(d, 0));
  Counter c1 = hn::ShiftRight<32>(c0);
  Counter c2 = hn::Set(d, draws.operation);
  Counter c3 = hn::Set(d, draws.step);
  auto key0 = static_cast<uint32_t>(draws.seed);
  auto key1 = static_cast<uint32_t>(draws.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Counter p0 = times(c0, 0xD2511F53);
    const Counter p1 = times(c2, 0xCD9E8D57);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, key0));
    c1 = p1;
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, key1));
    c3 = p0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  const Counter lower = hn::Set(d, 0xFFFFFFFF);
  store_pairs(hn::Or(hn::And(c0, lower), hn::ShiftLeft<32>(c1)),
              hn::Or(hn::And(c2, lower), hn::ShiftLeft<32>(c3)), words);
}

// Calls visit(i, words, count) for `count` words from word first + i of the stream on, behind which a vector
// may be read, until `total` words were visited.
template <class Visit>
void each_draw(const Draws& draws, uint64_t first, size_t total, const Visit& visit) {
  HWY_ALIGN uint64_t words[(kDrawnWords + kDrawnSlack) / 2];
  const size_t lanes = hn::Lanes(Counters());
  for (size_t i = 0; i < total;) {
    const size_t skipped = (first + i) % 4, count = std::min(total - i, kDrawnWords - skipped);
    for (size_t block = 0; block < (skipped + count + 3) / 4; block += lanes)
      draw_blocks(draws, (first + i) / 4 + block, words + 2 * block);
    visit(i, reinterpret_cast<const uint32_t*>(words) + skipped, count);
    i += count;
  }
}

// Whether the numbers in [0, 1) that words encode are below `limit`.
template <class D>
HWY_INLINE hn::Mask<D> draws_below(D d, const uint32_t* words, hn::Vec<D> limit) {
  const hn::RebindToUnsigned<D> unsigned_words;
  const hn::RebindToSigned<D> integers;
  const auto word = hn::BitCast(integers, hn::ShiftRight<8>(hn::LoadU(unsigned_words, words)));
  return hn::Lt(hn::Mul(hn::ConvertTo(d, word), hn::Set(d, 0x1p-24F)), limit);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
