#include "machine/host/probes.h"

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "machine/host/probes.cc"
#include "hwy/foreach_target.h"
// foreach_target comes first: it includes this file once per target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::machine::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Two units with a latency of 4 to 6 cycles need 8 to 12 chains; 12 fit the 16 registers of AVX2 together
// with the two operands.
constexpr size_t kChains = 12;

size_t FmaLoopFlops() { return 2 * kChains * hn::Lanes(D()); }

float FmaLoop(uint64_t iterations) {
  const D d;
  // A fixed point of x → x · 1/2 + 1/2 is 1: the values stay normal numbers.
  const V half = hn::Set(d, 0.5F);
  V a = hn::Set(d, 0.1F), b = hn::Set(d, 0.2F), c = hn::Set(d, 0.3F), e = hn::Set(d, 0.4F);
  V f = hn::Set(d, 0.5F), g = hn::Set(d, 0.6F), h = hn::Set(d, 0.7F), i = hn::Set(d, 0.8F);
  V j = hn::Set(d, 0.9F), k = hn::Set(d, 1.1F), l = hn::Set(d, 1.2F), m = hn::Set(d, 1.3F);
  for (uint64_t n = 0; n < iterations; ++n) {
    a = hn::MulAdd(a, half, half);
    b = hn::MulAdd(b, half, half);
    c = hn::MulAdd(c, half, half);
    e = hn::MulAdd(e, half, half);
    f = hn::MulAdd(f, half, half);
    g = hn::MulAdd(g, half, half);
    h = hn::MulAdd(h, half, half);
    i = hn::MulAdd(i, half, half);
    j = hn::MulAdd(j, half, half);
    k = hn::MulAdd(k, half, half);
    l = hn::MulAdd(l, half, half);
    m = hn::MulAdd(m, half, half);
  }
  const V sum = hn::Add(hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(f, g)),
                        hn::Add(hn::Add(hn::Add(h, i), hn::Add(j, k)), hn::Add(l, m)));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

float ReadLoop(const float* from, size_t words, int repeats) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V a = hn::Zero(d), b = a, c = a, e = a, f = a, g = a, h = a, i = a;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    // Two loads per operation: with fewer, the loads wait for the arithmetic units.
    for (const float* at = from; at < from + words; at += 16 * lanes) {
      a = hn::MulAdd(hn::Load(d, at), hn::Load(d, at + lanes), a);
      b = hn::MulAdd(hn::Load(d, at + 2 * lanes), hn::Load(d, at + 3 * lanes), b);
      c = hn::MulAdd(hn::Load(d, at + 4 * lanes), hn::Load(d, at + 5 * lanes), c);
      e = hn::MulAdd(hn::Load(d, at + 6 * lanes), hn::Load(d, at + 7 * lanes), e);
      f = hn::MulAdd(hn::Load(d, at + 8 * lanes), hn::Load(d, at + 9 * lanes), f);
      g = hn::MulAdd(hn::Load(d, at + 10 * lanes), hn::Load(d, at + 11 * lanes), g);
      h = hn::MulAdd(hn::Load(d, at + 12 * lanes), hn::Load(d, at + 13 * lanes), h);
      i = hn::MulAdd(hn::Load(d, at + 14 * lanes), hn::Load(d, at + 15 * lanes), i);
    }
  }
  const V sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, i)));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void WriteLoop(float* to, size_t words) {
  const D d;
  const V value = hn::Set(d, 1.0F);
  for (size_t i = 0; i < words; i += hn::Lanes(d)) hn::Store(value, d, to + i);
}

void CopyLoop(const float* from, float* to, size_t words) {
  const D d;
  for (size_t i = 0; i < words; i += hn::Lanes(d)) hn::Store(hn::Load(d, from + i), d, to + i);
}

}  // namespace
}  // namespace tessera::machine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::machine {

HWY_EXPORT(FmaLoopFlops);
HWY_EXPORT(FmaLoop);
HWY_EXPORT(ReadLoop);
HWY_EXPORT(WriteLoop);
HWY_EXPORT(CopyLoop);

size_t fma_loop_flops() { return HWY_DYNAMIC_DISPATCH(FmaLoopFlops)(); }
float fma_loop(uint64_t iterations) { return HWY_DYNAMIC_DISPATCH(FmaLoop)(iterations); }
float read_loop(const float* from, size_t words, int repeats) {
  return HWY_DYNAMIC_DISPATCH(ReadLoop)(from, words, repeats);
}
void write_loop(float* to, size_t words) { HWY_DYNAMIC_DISPATCH(WriteLoop)(to, words); }
void copy_loop(const float* from, float* to, size_t words) {
  HWY_DYNAMIC_DISPATCH(CopyLoop)(from, to, words);
}

uint64_t cycle_chain(uint64_t length) {
  uint64_t x = 1;
  uint64_t step = 3;
  for (uint64_t i = 0; i < length; i += 8) {
    // Opaque operands: neither compiler nor register renaming can merge additions of unknown values.
    for (int j = 0; j < 8; ++j) {
      asm volatile("" : "+r"(x), "+r"(step));
      x += step;
    }
  }
  return x;
}

}  // namespace tessera::machine
#endif  // HWY_ONCE
