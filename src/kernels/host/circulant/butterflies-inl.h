// Splitting polynomials, and merging the parts again, on columns of samples.
//
// A real polynomial modulo x^N − 1 splits into x^(N/2) − 1 and x^(N/2) + 1. The coefficients of the latter
// form a complex polynomial modulo x^(N/4) − i, real parts first, which splits further by powers of roots of
// unity. At the end every point holds a value of the transform. Factors belong to whole polynomials, so that
// neighbouring coefficients, and samples, are processed alike. Merging leaves out the divisions.
#if defined(TESSERA_CIRCULANT_BUTTERFLIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CIRCULANT_BUTTERFLIES_INL_H_
#undef TESSERA_CIRCULANT_BUTTERFLIES_INL_H_
#else
#define TESSERA_CIRCULANT_BUTTERFLIES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/panels-inl.h"
#include "kernels/host/circulant/layout.h"
#include "kernels/host/circulant/roots.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::fourier {
namespace hn = hwy::HWY_NAMESPACE;

using Lane = hn::Vec<Floats>;

struct Complex {
  Lane re, im;
};

HWY_INLINE Complex add(Complex a, Complex b) { return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)}; }
HWY_INLINE Complex sub(Complex a, Complex b) { return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)}; }
// a + ib, a − ib.
HWY_INLINE Complex add_i(Complex a, Complex b) { return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)}; }
HWY_INLINE Complex sub_i(Complex a, Complex b) { return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)}; }
// a·b, conj(a)·b.
HWY_INLINE Complex mul(Complex a, Complex b) {
  return {hn::NegMulAdd(a.im, b.im, hn::Mul(a.re, b.re)), hn::MulAdd(a.im, b.re, hn::Mul(a.re, b.im))};
}
HWY_INLINE Complex mul_conj(Complex a, Complex b) {
  return {hn::MulAdd(a.im, b.im, hn::Mul(a.re, b.re)), hn::NegMulAdd(a.im, b.re, hn::Mul(a.re, b.im))};
}

HWY_INLINE Complex load(const float* re, const float* im) {
  const Floats d;
  return {hn::Load(d, re), hn::Load(d, im)};
}
HWY_INLINE void store(Complex a, float* re, float* im) {
  const Floats d;
  hn::Store(a.re, d, re);
  hn::Store(a.im, d, im);
}

// ζ, ζ² and ζ³, the same in all lanes, or of a different block in each lane.
struct Roots {
  Complex power[3];

  explicit HWY_INLINE Roots(const FourierRoots& of) {
    const Floats d;
    for (int i = 0; i < 3; ++i) power[i] = {hn::Set(d, of.real[i]), hn::Set(d, of.imaginary[i])};
  }
  // The roots of blocks that begin `at` floats after the first.
  HWY_INLINE Roots(const float* first, hn::Vec<hn::RebindToSigned<Floats>> at) {
    const Floats d;
    for (int i = 0; i < 3; ++i)
      power[i] = {hn::GatherIndex(d, first + i, at), hn::GatherIndex(d, first + 3 + i, at)};
  }
};

// Splits four parts into four polynomials, in the order of two successive splits in two.
HWY_INLINE void split_four(const Roots& roots, Complex* a) {
  const Complex a1 = mul(roots.power[0], a[1]), a2 = mul(roots.power[1], a[2]),
                a3 = mul(roots.power[2], a[3]);
  const Complex even = add(a[0], a2), odd = add(a1, a3), even_rest = sub(a[0], a2), odd_rest = sub(a1, a3);
  a[0] = add(even, odd);
  a[1] = sub(even, odd);
  a[2] = add_i(even_rest, odd_rest);
  a[3] = sub_i(even_rest, odd_rest);
}
HWY_INLINE void merge_four(const Roots& roots, Complex* a) {
  const Complex even = add(a[0], a[1]), odd = add(a[2], a[3]);
  const Complex even_rest = sub(a[0], a[1]), odd_rest = sub(a[2], a[3]);
  a[0] = add(even, odd);
  a[1] = mul_conj(roots.power[0], sub_i(even_rest, odd_rest));
  a[2] = mul_conj(roots.power[1], sub(even, odd));
  a[3] = mul_conj(roots.power[2], add_i(even_rest, odd_rest));
}

HWY_INLINE void split_two(Complex root, Complex* a) {
  const Complex a1 = mul(root, a[1]);
  a[1] = sub(a[0], a1);
  a[0] = add(a[0], a1);
}
HWY_INLINE void merge_two(Complex root, Complex* a) {
  const Complex rest = sub(a[0], a[1]);
  a[0] = add(a[0], a[1]);
  a[1] = mul_conj(root, rest);
}

HWY_INLINE void split_real(Lane& a, Lane& b) {
  const Lane rest = hn::Sub(a, b);
  a = hn::Add(a, b);
  b = rest;
}

// A complex polynomial of `size` coefficients: block `root` of the roots, at points from `re` and `im` on.
struct Block {
  uint32_t root;
  uint32_t size;
  uint32_t re;
  uint32_t im;

  // Half r, quarter r.
  Block half(uint32_t r) const { return {2 * root + r, size / 2, re + r * (size / 2), im + r * (size / 2)}; }
  Block quarter(uint32_t r) const {
    return {4 * root + r, size / 4, re + r * (size / 4), im + r * (size / 4)};
  }
  bool splits_in_two() const { return std::countr_zero(size) % 2 != 0; }
};

// Parts of a block are equidistant: parts that are not within one run of columns are whole runs.
template <uint32_t parts, class Change>
HWY_INLINE void change_parts(float* columns, const Block& block, const Change& change) {
  const uint32_t step = block.size / parts;
  const size_t stride = column_of(step);
  for (uint32_t run = 0; run < step; run += kColumnRun) {
    float* re = columns + column_of(block.re + run);
    float* im = columns + column_of(block.im + run);
    const size_t floats = size_t{std::min(step - run, kColumnRun)} * kColumnLanes;
    for (const float* end = re + floats; re < end; re += kLanes, im += kLanes) {
      Complex a[parts];
#pragma GCC unroll 4
      for (uint32_t part = 0; part < parts; ++part) a[part] = load(re + part * stride, im + part * stride);
      change(a);
#pragma GCC unroll 4
      for (uint32_t part = 0; part < parts; ++part) store(a[part], re + part * stride, im + part * stride);
    }
  }
}

inline void split_block(float* columns, const FourierRoots* table, const Block& block) {
  const Roots roots(table[block.root]);
  if (block.splits_in_two())
    change_parts<2>(columns, block, [&](Complex* a) HWY_ATTR { split_two(roots.power[1], a); });
  else
    change_parts<4>(columns, block, [&](Complex* a) HWY_ATTR { split_four(roots, a); });
}
inline void merge_block(float* columns, const FourierRoots* table, const Block& block) {
  const Roots roots(table[block.root]);
  if (block.splits_in_two())
    change_parts<2>(columns, block, [&](Complex* a) HWY_ATTR { merge_two(roots.power[1], a); });
  else
    change_parts<4>(columns, block, [&](Complex* a) HWY_ATTR { merge_four(roots, a); });
}

// Takes real parts followed by imaginary parts as complex numbers.
template <int count>
HWY_INLINE void complex_of(const Lane* v, Complex* a) {
#pragma GCC unroll 4
  for (int i = 0; i < count; ++i) a[i] = {v[i], v[count + i]};
}
template <int count>
HWY_INLINE void parts_of(const Complex* a, Lane* v) {
#pragma GCC unroll 4
  for (int i = 0; i < count; ++i) {
    v[i] = a[i].re;
    v[count + i] = a[i].im;
  }
}

template <int half>
HWY_INLINE void split_halves(Lane* v) {
#pragma GCC unroll 8
  for (int i = 0; i < half; ++i) split_real(v[i], v[i + half]);
}

// Sixteen parts of a real polynomial: 0 and 1 remain, modulo x^(2K) − 1; the others become the real and
// imaginary parts of seven complex polynomials.
HWY_INLINE void split_head(const Roots& roots, Lane* v) {
  split_halves<8>(v);
  Complex a[4];
  complex_of<4>(v + 8, a);
  split_four(roots, a);
  parts_of<4>(a, v + 8);
  split_halves<4>(v);
  complex_of<2>(v + 4, a);
  split_two(roots.power[1], a);
  parts_of<2>(a, v + 4);
  split_halves<2>(v);
}
HWY_INLINE void merge_head(const Roots& roots, Lane* v) {
  split_halves<2>(v);
  Complex a[4];
  complex_of<2>(v + 4, a);
  merge_two(roots.power[1], a);
  parts_of<2>(a, v + 4);
  split_halves<4>(v);
  complex_of<4>(v + 8, a);
  merge_four(roots, a);
  parts_of<4>(a, v + 8);
  split_halves<8>(v);
}

inline constexpr uint32_t kHeadParts = 16;

// Splits or merges parts that lie `step` points apart.
template <bool splits>
inline void change_head(float* columns, const FourierRoots* table, uint32_t step) {
  const Floats d;
  const Roots roots(table[1]);
  for (uint32_t run = 0; run < step; run += kColumnRun) {
    float* at[kHeadParts];
    for (uint32_t part = 0; part < kHeadParts; ++part) at[part] = columns + column_of(part * step + run);
    const size_t floats = size_t{std::min(step - run, kColumnRun)} * kColumnLanes;
    for (size_t i = 0; i < floats; i += kLanes) {
      Lane v[kHeadParts];
#pragma GCC unroll 16
      for (uint32_t part = 0; part < kHeadParts; ++part) v[part] = hn::Load(d, at[part] + i);
      splits ? split_head(roots, v) : merge_head(roots, v);
#pragma GCC unroll 16
      for (uint32_t part = 0; part < kHeadParts; ++part) hn::Store(v[part], d, at[part] + i);
    }
  }
}

inline void split_real_block(float* columns, const FourierRoots* table, uint32_t step) {
  change_head<true>(columns, table, step);
}
inline void merge_real_block(float* columns, const FourierRoots* table, uint32_t step) {
  change_head<false>(columns, table, step);
}

// Maximum number of points that are split completely at once.
inline constexpr uint32_t kTailPoints = 8;
template <bool splits>
inline void change_tail(float* columns, const FourierRoots* table, uint32_t size) {
  const Floats d;
  const Complex root = Roots(table[1]).power[1];
  for (size_t i = 0; i < kColumnLanes; i += kLanes) {
    Lane v[kTailPoints];
    for (uint32_t p = 0; p < size; ++p) v[p] = hn::Load(d, columns + column_of(p) + i);
    Complex a[2];
    if (splits && size == 8) {
      split_halves<4>(v);
      complex_of<2>(v + 4, a);
      split_two(root, a);
      parts_of<2>(a, v + 4);
    }
    if (splits && size >= 4) split_halves<2>(v);
    split_halves<1>(v);
    if (!splits && size >= 4) split_halves<2>(v);
    if (!splits && size == 8) {
      complex_of<2>(v + 4, a);
      merge_two(root, a);
      parts_of<2>(a, v + 4);
      split_halves<4>(v);
    }
    for (uint32_t p = 0; p < size; ++p) hn::Store(v[p], d, columns + column_of(p) + i);
  }
}
inline void split_tail(float* columns, const FourierRoots* table, uint32_t size) {
  change_tail<true>(columns, table, size);
}
inline void merge_tail(float* columns, const FourierRoots* table, uint32_t size) {
  change_tail<false>(columns, table, size);
}

}  // namespace tessera::kernels::HWY_NAMESPACE::fourier
HWY_AFTER_NAMESPACE();
#endif
