// Transforms of single samples, on vectors along the features.
#if defined(TESSERA_CIRCULANT_LINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CIRCULANT_LINE_INL_H_
#undef TESSERA_CIRCULANT_LINE_INL_H_
#else
#define TESSERA_CIRCULANT_LINE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/lane_columns-inl.h"
#include "kernels/host/circulant/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::fourier {
namespace hn = hwy::HWY_NAMESPACE;

// Polynomials that are split side by side, one per lane: their roots, and the columns in which they lie.
struct Leaves {
  uint32_t count = 0;
  int32_t root[kLanes];
  uint32_t re[kLanes], im[kLanes];

  // Polynomial i of `among`.
  void add(uint32_t among, uint32_t i) {
    root[count] = static_cast<int32_t>(among + i);
    re[count] = 2 * among + i;
    im[count] = 3 * among + i;
    ++count;
  }
};

// A line of features is split as columns of kColumnLanes neighbours, until each column is a polynomial of its
// own. These are transposed, and split with a polynomial in each lane.
class LineTransform {
 public:
  LineTransform(uint32_t size, const FourierRoots* table, float* columns)
      : size_(size),
        table_(table),
        columns_(columns),
        rest_(columns + floats_of_columns(size / kColumnLanes)) {}

  // Transforms a line to its spectrum, in place.
  void split(float* line) const {
    copy(line, kColumnLanes, columns_, true);
    walk(Analysis{{columns_}, table_}, columns());
    each_group([&](const Leaves& leaves) HWY_ATTR {
      Complex a[kColumnLanes];
      load(
          leaves, columns_, [](size_t column) { return column_of(column); }, a);
      const Roots roots = roots_of(leaves, 1, 0);
      for (uint32_t i = 0; i < 4; ++i) {
        Complex part[4] = {a[i], a[4 + i], a[8 + i], a[12 + i]};
        split_four(roots, part);
        for (uint32_t r = 0; r < 4; ++r) a[4 * r + i] = part[r];
      }
      for (uint32_t r = 0; r < 4; ++r) split_four(roots_of(leaves, 4, r), a + 4 * r);
      store(leaves, a, line, [](size_t column) { return column * kColumnLanes; });
    });
    split_rest(line);
  }

  // Transforms a spectrum back to the line, in place.
  void merge(float* line) const {
    each_group([&](const Leaves& leaves) HWY_ATTR {
      Complex a[kColumnLanes];
      load(
          leaves, line, [](size_t column) { return column * kColumnLanes; }, a);
      for (uint32_t r = 0; r < 4; ++r) merge_four(roots_of(leaves, 4, r), a + 4 * r);
      const Roots roots = roots_of(leaves, 1, 0);
      for (uint32_t i = 0; i < 4; ++i) {
        Complex part[4] = {a[i], a[4 + i], a[8 + i], a[12 + i]};
        merge_four(roots, part);
        for (uint32_t r = 0; r < 4; ++r) a[4 * r + i] = part[r];
      }
      store(leaves, a, columns_, [](size_t column) { return column_of(column); });
    });
    merge_rest(line);
    walk(Synthesis{{columns_}, table_}, columns());
    copy(line, kColumnLanes, columns_, false);
  }

 private:
  uint32_t columns() const { return size_ / kColumnLanes; }

  void copy(float* line, size_t step, float* columns, bool into_columns) const {
    const Floats d;
    for (size_t column = 0; column < this->columns(); ++column)
      for (size_t i = 0; i < kColumnLanes; i += kLanes) {
        float *in_line = line + column * step + i, *in_column = columns + column_of(column) + i;
        into_columns ? hn::Store(hn::Load(d, in_line), d, in_column)
                     : hn::Store(hn::Load(d, in_column), d, in_line);
      }
  }

  // Columns from 2 on hold complex polynomials; polynomials smaller than a vector share one.
  template <class Visit>
  void each_group(const Visit& visit) const {
    uint32_t among = columns() / 4;
    for (; among >= kLanes; among /= 2)
      for (uint32_t begin = 0; begin < among; begin += kLanes) {
        Leaves leaves;
        for (uint32_t i = 0; i < kLanes; ++i) leaves.add(among, begin + i);
        visit(leaves);
      }
    Leaves leaves;
    for (; among > 0; among /= 2)
      for (uint32_t i = 0; i < among; ++i) leaves.add(among, i);
    while (leaves.count < kLanes) leaves.add(1, 0);
    visit(leaves);
  }

  // The roots of blocks factor · root + child.
  HWY_INLINE Roots roots_of(const Leaves& leaves, int32_t factor, uint32_t child) const {
    const hn::RebindToSigned<Floats> d;
    constexpr int32_t kFloats = sizeof(FourierRoots) / sizeof(float);
    const auto block = hn::Add(hn::Mul(hn::LoadU(d, leaves.root), hn::Set(d, factor)),
                               hn::Set(d, static_cast<int32_t>(child)));
    return Roots(table_->real, hn::Mul(block, hn::Set(d, kFloats)));
  }

  template <class OffsetOf>
  static HWY_INLINE void load(const Leaves& leaves, const float* from, const OffsetOf& offset_of,
                              Complex* a) {
    const Floats d;
    for (size_t at = 0; at < kColumnLanes; at += kLanes) {
      transpose_square([&](size_t i) HWY_ATTR { return hn::Load(d, from + offset_of(leaves.re[i]) + at); },
                       [&](size_t i, Lane v) HWY_ATTR { a[at + i].re = v; });
      transpose_square([&](size_t i) HWY_ATTR { return hn::Load(d, from + offset_of(leaves.im[i]) + at); },
                       [&](size_t i, Lane v) HWY_ATTR { a[at + i].im = v; });
    }
  }
  template <class OffsetOf>
  static HWY_INLINE void store(const Leaves& leaves, const Complex* a, float* to, const OffsetOf& offset_of) {
    const Floats d;
    for (size_t at = 0; at < kColumnLanes; at += kLanes) {
      transpose_square([&](size_t i) HWY_ATTR { return a[at + i].re; },
                       [&](size_t i, Lane v)
                           HWY_ATTR { hn::Store(v, d, to + offset_of(leaves.re[i]) + at); });
      transpose_square([&](size_t i) HWY_ATTR { return a[at + i].im; },
                       [&](size_t i, Lane v)
                           HWY_ATTR { hn::Store(v, d, to + offset_of(leaves.im[i]) + at); });
    }
  }

  // Columns 0 and 1, real polynomials modulo x^16 − 1 and x^16 + 1, a point per column.
  static constexpr Block kSecond = {1, kColumnLanes / 2, kColumnLanes, kColumnLanes + kColumnLanes / 2};
  void split_rest(float* line) const {
    std::fill_n(rest_, 2 * kColumnLanes * kColumnLanes, 0.0F);
    for (size_t i = 0; i < 2 * kColumnLanes; ++i) rest_[i * kColumnLanes] = columns_[i];
    const Walk<Analysis> rest(Analysis{{rest_}, table_});
    rest.run(kColumnLanes);
    rest.block(kSecond);
    for (size_t i = 0; i < 2 * kColumnLanes; ++i) line[i] = rest_[i * kColumnLanes];
  }
  void merge_rest(const float* line) const {
    std::fill_n(rest_, 2 * kColumnLanes * kColumnLanes, 0.0F);
    for (size_t i = 0; i < 2 * kColumnLanes; ++i) rest_[i * kColumnLanes] = line[i];
    const Walk<Synthesis> rest(Synthesis{{rest_}, table_});
    rest.run(kColumnLanes);
    rest.block(kSecond);
    for (size_t i = 0; i < 2 * kColumnLanes; ++i) columns_[i] = rest_[i * kColumnLanes];
  }

  const uint32_t size_;
  const FourierRoots* table_;
  float* columns_;
  float* rest_;
};

// Calls real(point, count) and complex(re, im, count) for the values of a spectrum, up to a vector at a time.
template <class Real, class Complexes>
HWY_INLINE void each_value(uint32_t size, const Real& real, const Complexes& complex) {
  real(0, 2);
  for (uint32_t count = 1; 4 * count <= size; count *= 2)
    for (uint32_t i = 0; i < count; i += kLanes)
      complex(2 * count + i, 3 * count + i, std::min<size_t>(kLanes, count - i));
}

HWY_INLINE Complex load_some(const float* values, size_t re, size_t im, size_t count) {
  return {load_lanes(values + re, count), load_lanes(values + im, count)};
}
HWY_INLINE void store_some(Complex a, float* values, size_t re, size_t im, size_t count) {
  store_lanes(a.re, values + re, count);
  store_lanes(a.im, values + im, count);
}

// a becomes a times the spectrum, or times its conjugate.
inline void multiply_line(float* a, const float* spectrum, uint32_t size, bool conjugate) {
  each_value(
      size,
      [&](size_t p, size_t count) HWY_ATTR {
        store_lanes(hn::Mul(load_lanes(spectrum + p, count), load_lanes(a + p, count)), a + p, count);
      },
      [&](size_t re, size_t im, size_t count) HWY_ATTR {
        const Complex s = load_some(spectrum, re, im, count), v = load_some(a, re, im, count);
        store_some(conjugate ? mul_conj(s, v) : mul(s, v), a, re, im, count);
      });
}

// The conjugate of a times b is added to the totals.
inline void add_product_of_lines(const float* a, const float* b, float* totals, uint32_t size) {
  each_value(
      size,
      [&](size_t p, size_t count) HWY_ATTR {
        const auto product = hn::Mul(load_lanes(a + p, count), load_lanes(b + p, count));
        store_lanes(hn::Add(load_lanes(totals + p, count), product), totals + p, count);
      },
      [&](size_t re, size_t im, size_t count) HWY_ATTR {
        const Complex product = mul_conj(load_some(a, re, im, count), load_some(b, re, im, count));
        store_some(add(load_some(totals, re, im, count), product), totals, re, im, count);
      });
}

}  // namespace tessera::kernels::HWY_NAMESPACE::fourier
HWY_AFTER_NAMESPACE();
#endif
