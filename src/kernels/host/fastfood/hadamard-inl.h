// Walsh-Hadamard transforms of columns of samples, without the factor N^(−½).
#if defined(TESSERA_FASTFOOD_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_FASTFOOD_HADAMARD_INL_H_
#undef TESSERA_FASTFOOD_HADAMARD_INL_H_
#else
#define TESSERA_FASTFOOD_HADAMARD_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/common/lane_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::fastfood {
namespace hn = hwy::HWY_NAMESPACE;

using Lane = hn::Vec<Floats>;

// Sums run on adders; differences run on multipliers, as multiply-subtracts, which are equally exact.
template <uint32_t parts>
HWY_INLINE void hadamard(Lane* v) {
  const auto one = hn::Set(Floats(), 1.0F);
#pragma GCC unroll 4
  for (uint32_t half = parts / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (uint32_t i = 0; i < parts; ++i) {
      if ((i & half) != 0) continue;
      const Lane a = v[i], b = v[i + half];
      v[i] = hn::Add(a, b);
      v[i + half] = hn::MulSub(a, one, b);
    }
}

// Columns as a source and a sink of vectors: a vector of point p lies at `place`, which is column_of(p) plus
// a lane.
struct Columns {
  float* data;

  HWY_INLINE Lane operator()(size_t /*p*/, size_t place) const { return hn::Load(Floats(), data + place); }
  HWY_INLINE void operator()(size_t /*p*/, size_t place, Lane v) const {
    hn::Store(v, Floats(), data + place);
  }
};

// A transform whose first pass takes its columns from source(p, place), whose last one hands them to
// sink(p, place, v), and whose others work in place.
template <class Source, class Sink>
class Transform {
 public:
  Transform(const Source& source, const Columns& columns, const Sink& sink)
      : source_(source), columns_(columns), sink_(sink) {}

  void run(uint32_t size) const {
    const auto bits = static_cast<uint32_t>(std::countr_zero(size));
    // For few points, a pass that only moves columns could be fused, at the price of twice the code.
    if (bits <= kMostBits) {
      pass(bits, 0, size, size, source_, columns_);
      return pass_of<1>(0, size, size, columns_, sink_);
    }
    const uint32_t here = bits_of_pass(bits);
    pass(here, 0, size, size, source_, columns_);
    rest(0, size, size >> here);
  }

 private:
  static constexpr uint32_t kMostBits = 4;
  // Columns that are processed pass by pass: a part of the L1 cache.
  static constexpr uint32_t kResident = 256;

  static uint32_t bits_of_pass(uint32_t bits) {
    const uint32_t passes = (bits + kMostBits - 1) / kMostBits;
    return (bits + passes - 1) / passes;
  }

  // Does the remaining transforms of `size` in [begin, begin + count).
  void rest(uint32_t begin, uint32_t count, uint32_t size) const {
    if (count > kResident && count > size) {
      for (uint32_t i = 0; i < count; i += size) rest(begin + i, size, size);
      return;
    }
    const auto bits = static_cast<uint32_t>(std::countr_zero(size));
    if (bits <= kMostBits) return pass(bits, begin, count, size, columns_, sink_);
    const uint32_t here = bits_of_pass(bits);
    pass(here, begin, count, size, columns_, columns_);
    rest(begin, count, size >> here);
  }

  template <class From, class To>
  static void pass(uint32_t bits, uint32_t begin, uint32_t count, uint32_t size, const From& from,
                   const To& to) {
    switch (bits) {
      case 0: return pass_of<1>(begin, count, size, from, to);
      case 1: return pass_of<2>(begin, count, size, from, to);
      case 2: return pass_of<4>(begin, count, size, from, to);
      case 3: return pass_of<8>(begin, count, size, from, to);
      default: return pass_of<16>(begin, count, size, from, to);
    }
  }

  template <uint32_t parts, class From, class To>
  static void pass_of(uint32_t begin, uint32_t count, uint32_t size, const From& from, const To& to) {
    const uint32_t step = size / parts;
    // Within one run of columns, and between whole runs, columns are equidistant.
    if (size <= kColumnRun || step >= kColumnRun) {
      const size_t stride = column_of(step);
      each_butterfly<parts>(begin, count, size, from, to,
                            [=](size_t p, uint32_t i) { return column_of(p) + i * stride; });
    } else {
      each_butterfly<parts>(begin, count, size, from, to,
                            [=](size_t p, uint32_t i) { return column_of(p + size_t{i} * step); });
    }
  }

  template <uint32_t parts, class From, class To, class OffsetOf>
  static HWY_INLINE void each_butterfly(uint32_t begin, uint32_t count, uint32_t size, const From& from,
                                        const To& to, const OffsetOf& offset_of) {
    const uint32_t step = size / parts;
    for (uint32_t at = begin; at < begin + count; at += size)
      for (uint32_t p = at; p < at + step; ++p)
        for (size_t lane = 0; lane < kColumnLanes; lane += kLanes) {
          Lane v[parts];
#pragma GCC unroll 16
          for (uint32_t i = 0; i < parts; ++i) v[i] = from(p + i * step, offset_of(p, i) + lane);
          hadamard<parts>(v);
#pragma GCC unroll 16
          for (uint32_t i = 0; i < parts; ++i) to(p + i * step, offset_of(p, i) + lane, v[i]);
        }
  }

  const Source& source_;
  const Columns columns_;
  const Sink& sink_;
};

template <class Source, class Sink>
void transform(uint32_t size, const Source& source, const Columns& columns, const Sink& sink) {
  Transform<Source, Sink>(source, columns, sink).run(size);
}

}  // namespace tessera::kernels::HWY_NAMESPACE::fastfood
HWY_AFTER_NAMESPACE();
#endif
