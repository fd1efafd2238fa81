// Walks through the polynomials of a transform depth first, so that a part of the spectrum is processed while
// it is in the L1 cache.
#if defined(TESSERA_CIRCULANT_TRANSFORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CIRCULANT_TRANSFORM_INL_H_
#undef TESSERA_CIRCULANT_TRANSFORM_INL_H_
#else
#define TESSERA_CIRCULANT_TRANSFORM_INL_H_
#endif

#include "kernels/host/circulant/butterflies-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::fourier {
namespace hn = hwy::HWY_NAMESPACE;

// The arrays of columns that are split on the way to the spectrum, and the one that is merged on the way
// back. Work defines kSplits, kMerges, columns[kSplits] of which the last is merged, table, and on values in
// registers: complex_values(p, a) and real_value(p, a) where a[k] is the value of array k at point p, `im`
// the point of the imaginary part. They leave the values to be stored in a[k].
template <class Work>
class Walk {
 public:
  explicit Walk(const Work& work) : work_(work) {}

  void run(uint32_t size) const {
    if (size <= kTailPoints) return tail(size);
    const uint32_t step = size / kHeadParts;
    each_split([&](float* columns) HWY_ATTR { split_real_block(columns, work_.table, step); });
    for (uint32_t first = 1; first < 8; first *= 2)
      for (uint32_t i = 0; i < first; ++i)
        block({first + i, step, (2 * first + i) * step, (3 * first + i) * step});
    run(2 * step);
    merged([&](float* columns) HWY_ATTR { merge_real_block(columns, work_.table, step); });
  }

  void block(const Block& of) const {
    if (of.size == 1) return value(of);
    if (of.size == 4) return four_values(of);
    each_split([&](float* columns) HWY_ATTR { split_block(columns, work_.table, of); });
    if (of.splits_in_two())
      for (uint32_t r = 0; r < 2; ++r) block(of.half(r));
    else
      for (uint32_t r = 0; r < 4; ++r) block(of.quarter(r));
    merged([&](float* columns) HWY_ATTR { merge_block(columns, work_.table, of); });
  }

 private:
  static constexpr int kArrays = Work::kSplits == 0 ? 1 : Work::kSplits;

  template <class Visit>
  void each_split(const Visit& visit) const {
    for (int k = 0; k < Work::kSplits; ++k) visit(work_.columns[k]);
  }
  template <class Visit>
  void merged(const Visit& visit) const {
    if (Work::kMerges) visit(work_.columns[kArrays - 1]);
  }

  void value(const Block& of) const {
    const size_t re = column_of(of.re), im = column_of(of.im);
    for (size_t i = 0; i < kColumnLanes; i += kLanes) {
      Complex a[kArrays];
      for (int k = 0; k < kArrays; ++k) a[k] = load(work_.columns[k] + re + i, work_.columns[k] + im + i);
      work_.complex_value(of.re, of.im, a);
      for (int k = 0; k < kArrays; ++k) store(a[k], work_.columns[k] + re + i, work_.columns[k] + im + i);
    }
  }

  // Does the last split, the work on four values, and the first merge.
  void four_values(const Block& of) const {
    const Roots roots(work_.table[of.root]);
    const size_t re = column_of(of.re), im = column_of(of.im);
    for (size_t i = 0; i < kColumnLanes; i += kLanes) {
      Complex a[kArrays][4];
#pragma GCC unroll 2
      for (int k = 0; k < kArrays; ++k) {
        const float* columns = work_.columns[k] + i;
#pragma GCC unroll 4
        for (uint32_t r = 0; r < 4; ++r)
          a[k][r] = load(columns + re + r * kColumnLanes, columns + im + r * kColumnLanes);
        if (Work::kSplits > 0) split_four(roots, a[k]);
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < 4; ++r) {
        Complex values[kArrays];
        for (int k = 0; k < kArrays; ++k) values[k] = a[k][r];
        work_.complex_value(of.re + r, of.im + r, values);
        for (int k = 0; k < kArrays; ++k) a[k][r] = values[k];
      }
      if (Work::kMerges) merge_four(roots, a[kArrays - 1]);
#pragma GCC unroll 2
      for (int k = 0; k < kArrays; ++k) {
        float* columns = work_.columns[k] + i;
#pragma GCC unroll 4
        for (uint32_t r = 0; r < 4; ++r)
          store(a[k][r], columns + re + r * kColumnLanes, columns + im + r * kColumnLanes);
      }
    }
  }

  void tail(uint32_t size) const {
    each_split([&](float* columns) HWY_ATTR { split_tail(columns, work_.table, size); });
    if (size == 8) {
      value({2, 1, 4, 6});
      value({3, 1, 5, 7});
    }
    if (size >= 4) value({1, 1, 2, 3});
    const Floats d;
    for (size_t i = 0; i < 2 * kColumnLanes; i += kLanes) {
      Lane a[kArrays];
      for (int k = 0; k < kArrays; ++k) a[k] = hn::Load(d, work_.columns[k] + i);
      work_.real_value(i / kColumnLanes, a);
      for (int k = 0; k < kArrays; ++k) hn::Store(a[k], d, work_.columns[k] + i);
    }
    merged([&](float* columns) HWY_ATTR { merge_tail(columns, work_.table, size); });
  }

  const Work work_;
};

template <class Work>
void walk(const Work& work, uint32_t size) {
  Walk<Work>(work).run(size);
}

// Transforms columns to their spectrum.
struct Analysis {
  static constexpr int kSplits = 1;
  static constexpr bool kMerges = false;
  float* columns[1];
  const FourierRoots* table;

  HWY_INLINE void complex_value(size_t, size_t, Complex*) const {}
  HWY_INLINE void real_value(size_t, Lane*) const {}
};

// Transforms a spectrum to columns.
struct Synthesis {
  static constexpr int kSplits = 0;
  static constexpr bool kMerges = true;
  float* columns[1];
  const FourierRoots* table;

  HWY_INLINE void complex_value(size_t, size_t, Complex*) const {}
  HWY_INLINE void real_value(size_t, Lane*) const {}
};

// Multiplies columns by a spectrum, or by its conjugate.
template <bool conjugate>
struct Convolution {
  static constexpr int kSplits = 1;
  static constexpr bool kMerges = true;
  float* columns[1];
  const FourierRoots* table;
  const float* spectrum;

  HWY_INLINE Complex factor(size_t re, size_t im) const {
    const Floats d;
    return {hn::Set(d, spectrum[re]), hn::Set(d, spectrum[im])};
  }
  HWY_INLINE void complex_value(size_t re, size_t im, Complex* a) const {
    a[0] = conjugate ? mul_conj(factor(re, im), a[0]) : mul(factor(re, im), a[0]);
  }
  HWY_INLINE void real_value(size_t p, Lane* a) const {
    a[0] = hn::Mul(hn::Set(Floats(), spectrum[p]), a[0]);
  }
};

// Replaces columns of x by the conjugate of their spectrum times the spectrum of dy. With `merges`, columns
// of dy become dx.
template <bool merges>
struct Correlations {
  static constexpr int kSplits = 2;
  static constexpr bool kMerges = merges;
  float* columns[2];  // x, dy
  const FourierRoots* table;
  const float* spectrum;

  HWY_INLINE void complex_value(size_t re, size_t im, Complex* a) const {
    a[0] = mul_conj(a[0], a[1]);
    if (!merges) return;
    const Floats d;
    a[1] = mul_conj({hn::Set(d, spectrum[re]), hn::Set(d, spectrum[im])}, a[1]);
  }
  HWY_INLINE void real_value(size_t p, Lane* a) const {
    a[0] = hn::Mul(a[0], a[1]);
    if (merges) a[1] = hn::Mul(hn::Set(Floats(), spectrum[p]), a[1]);
  }
};

}  // namespace tessera::kernels::HWY_NAMESPACE::fourier
HWY_AFTER_NAMESPACE();
#endif
