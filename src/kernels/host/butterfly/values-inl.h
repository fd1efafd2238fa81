// Features of a vector of samples, and their products with 2 × 2 matrices.
#if defined(TESSERA_BUTTERFLY_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BUTTERFLY_VALUES_INL_H_
#undef TESSERA_BUTTERFLY_VALUES_INL_H_
#else
#define TESSERA_BUTTERFLY_VALUES_INL_H_
#endif

#include <cstddef>

#include "kernels/common/lane_totals-inl.h"
#include "kernels/common/sample_lanes-inl.h"
#include "kernels/host/butterfly/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

HWY_INLINE DotVec broadcast(const float* from) { return hn::Set(DotFloats(), *from); }

// A feature of kLanes samples; a matrix is 4 floats, row by row.
struct RealValue {
  static constexpr size_t kMatrix = 4;
  DotVec v;

  static HWY_INLINE RealValue load(const float* from, size_t /*lanes*/) {
    return {hn::LoadU(DotFloats(), from)};
  }
  HWY_INLINE void store(float* to, size_t /*lanes*/) const { hn::StoreU(v, DotFloats(), to); }

  // (x0, x1) = T·(x0, x1)
  static HWY_INLINE void multiply(const float* t, RealValue& x0, RealValue& x1) {
    const DotVec y0 = hn::MulAdd(broadcast(t + 1), x1.v, hn::Mul(broadcast(t), x0.v));
    const DotVec y1 = hn::MulAdd(broadcast(t + 3), x1.v, hn::Mul(broadcast(t + 2), x0.v));
    x0.v = y0;
    x1.v = y1;
  }
  static HWY_INLINE void multiply_transposed(const float* t, RealValue& x0, RealValue& x1) {
    const DotVec y0 = hn::MulAdd(broadcast(t + 2), x1.v, hn::Mul(broadcast(t), x0.v));
    const DotVec y1 = hn::MulAdd(broadcast(t + 3), x1.v, hn::Mul(broadcast(t + 1), x0.v));
    x0.v = y0;
    x1.v = y1;
  }
  // sums += (g0, g1) ⊗ (x0, x1)
  static HWY_INLINE void add_outer(RealValue g0, RealValue g1, RealValue x0, RealValue x1, DotVec* sums) {
    sums[0] = hn::MulAdd(g0.v, x0.v, sums[0]);
    sums[1] = hn::MulAdd(g0.v, x1.v, sums[1]);
    sums[2] = hn::MulAdd(g1.v, x0.v, sums[2]);
    sums[3] = hn::MulAdd(g1.v, x1.v, sums[3]);
  }
};

// A complex feature of kLanes samples: rows of real and of imaginary parts; a matrix is 8 floats.
struct ComplexValue {
  static constexpr size_t kMatrix = 8;
  DotVec re, im;

  static HWY_INLINE ComplexValue load(const float* from, size_t lanes) {
    return {hn::LoadU(DotFloats(), from), hn::LoadU(DotFloats(), from + lanes)};
  }
  HWY_INLINE void store(float* to, size_t lanes) const {
    hn::StoreU(re, DotFloats(), to);
    hn::StoreU(im, DotFloats(), to + lanes);
  }

  // a·x + b·y with the coefficients at a and b
  static HWY_INLINE ComplexValue combine(const float* a, ComplexValue x, const float* b, ComplexValue y) {
    const DotVec a_re = broadcast(a), a_im = broadcast(a + 1), b_re = broadcast(b), b_im = broadcast(b + 1);
    return {hn::NegMulAdd(b_im, y.im, hn::MulAdd(b_re, y.re, hn::NegMulAdd(a_im, x.im, hn::Mul(a_re, x.re)))),
            hn::MulAdd(b_im, y.re, hn::MulAdd(b_re, y.im, hn::MulAdd(a_im, x.re, hn::Mul(a_re, x.im))))};
  }
  // conj(a)·x + conj(b)·y with the coefficients at a and b
  static HWY_INLINE ComplexValue combine_conjugate(const float* a, ComplexValue x, const float* b,
                                                   ComplexValue y) {
    const DotVec a_re = broadcast(a), a_im = broadcast(a + 1), b_re = broadcast(b), b_im = broadcast(b + 1);
    return {
        hn::MulAdd(b_im, y.im, hn::MulAdd(b_re, y.re, hn::MulAdd(a_im, x.im, hn::Mul(a_re, x.re)))),
        hn::NegMulAdd(b_im, y.re, hn::MulAdd(b_re, y.im, hn::NegMulAdd(a_im, x.re, hn::Mul(a_re, x.im))))};
  }

  static HWY_INLINE void multiply(const float* t, ComplexValue& x0, ComplexValue& x1) {
    const ComplexValue y0 = combine(t, x0, t + 2, x1);
    x1 = combine(t + 4, x0, t + 6, x1);
    x0 = y0;
  }
  static HWY_INLINE void multiply_transposed(const float* t, ComplexValue& x0, ComplexValue& x1) {
    const ComplexValue y0 = combine_conjugate(t, x0, t + 4, x1);
    x1 = combine_conjugate(t + 2, x0, t + 6, x1);
    x0 = y0;
  }
  // sums += g·conj(x)
  static HWY_INLINE void add_product(ComplexValue g, ComplexValue x, DotVec* sums) {
    sums[0] = hn::MulAdd(g.im, x.im, hn::MulAdd(g.re, x.re, sums[0]));
    sums[1] = hn::NegMulAdd(g.re, x.im, hn::MulAdd(g.im, x.re, sums[1]));
  }
  static HWY_INLINE void add_outer(ComplexValue g0, ComplexValue g1, ComplexValue x0, ComplexValue x1,
                                   DotVec* sums) {
    add_product(g0, x0, sums);
    add_product(g0, x1, sums + 2);
    add_product(g1, x0, sums + 4);
    add_product(g1, x1, sums + 6);
  }
};

// The pair of a group of 2^bits features at stride 2^level, and its matrix.
struct GroupPair {
  size_t first, second, matrix;
};
template <bool tied>
HWY_INLINE constexpr GroupPair group_pair(size_t level, size_t pair) {
  const size_t mask = (size_t{1} << level) - 1;
  const size_t first = ((pair & ~mask) << 1) | (pair & mask);
  return {first, first + mask + 1, tied ? pair & mask : pair};
}

// Positions of a group's coefficients: for each stride, the positions of its first pair, and the number of
// floats from pair to pair.
struct GroupTwiddle {
  const float* at[kMostPassBits];
  size_t step;
};

// Features of a tile, in columns of scratch or in place in a batch.
struct ColumnView {
  float* data;
  ButterflyColumns layout;
  size_t part;  // floats from real to imaginary parts

  HWY_INLINE float* at(uint32_t feature) const { return data + layout.at(feature); }
};

// Whether a tile can use its samples in place: they fill the tile, are adjacent, and have `numbers` floats
// each.
inline bool is_in_place(const Samples& x, const LaneTile& tile, size_t numbers) {
  return x.sample_stride == 1 && x.feature_stride > 0 && tile.count == tile.lanes && x.features >= numbers;
}
inline ColumnView in_place(const Samples& x, const LaneTile& tile, size_t parts) {
  const auto part = static_cast<size_t>(x.feature_stride);
  return {x.pointer_to(tile.begin, 0), ButterflyColumns(part * parts), part};
}

// The groups that a pass processes in a unit: for each offset of `high` and `middle`, `low` adjacent ones.
struct PassGroups {
  uint32_t feature;  // first feature
  uint32_t low, middle, high;
  uint32_t middle_step;  // distance of middle groups, in features
  uint32_t high_step;

  PassGroups(const ButterflyPass& pass, const ButterflySegment& segment, uint32_t unit)
      : feature(segment.feature(unit)),
        low(segment.is_chunk() ? 1U << pass.first : kButterflyRun),
        middle(segment.is_chunk() ? 1 : 1U << (pass.first - segment.low)),
        high(1U << (segment.high - pass.first - pass.bits)),
        middle_step(1U << segment.low),
        high_step(1U << (pass.first + pass.bits)) {}
};

// Distance of the matrices of each stride from one group of a run to the next.
template <bool tied>
HWY_INLINE constexpr size_t group_matrices(uint32_t step) {
  return step == 1 ? 1 : tied ? 0 : step / 2;
}

// The twiddle of one stack.
struct StackTwiddle {
  const float* data;
  int64_t row_stride;
  ButterflyShape shape;

  // Row and column of a pass's matrices of one stride, from `feature` on, a group's first feature.
  template <bool tied>
  HWY_INLINE size_t offset(const ButterflyPass& pass, uint32_t level, uint32_t feature) const {
    const uint32_t stride = uint32_t{1} << pass.first, low = feature & (stride - 1);
    if constexpr (tied) return size_t{(stride << level) - 1 + low} * shape.matrix();
    const uint32_t bit = pass.first + level;
    const uint32_t row = pass.block * shape.log_n + (pass.decreasing ? shape.log_n - 1 - bit : bit);
    const size_t group = feature >> (pass.first + pass.bits);
    const size_t pair = (group << (pass.bits - 1) << pass.first) + low;
    return static_cast<size_t>(row * row_stride) + pair * shape.matrix();
  }
  template <bool tied>
  HWY_INLINE GroupTwiddle at(const ButterflyPass& pass, uint32_t feature) const {
    GroupTwiddle group{};
    for (uint32_t level = 0; level < pass.bits; ++level)
      group.at[level] = data + offset<tied>(pass, level, feature);
    group.step = size_t{shape.matrix()} << pass.first;
    return group;
  }
};

// Calls visit(feature, count, step): `count` groups whose first features are `step` apart.
template <class Visit>
HWY_INLINE void each_run(const PassGroups& groups, const Visit& visit) {
  if (groups.low == 1 && groups.middle == 1) return visit(groups.feature, groups.high, groups.high_step);
  for (uint32_t high = 0; high < groups.high; ++high)
    for (uint32_t middle = 0; middle < groups.middle; ++middle)
      visit(groups.feature + high * groups.high_step + middle * groups.middle_step, groups.low, 1);
}

// Calls visit(std::integral_constant<size_t, n>) for n = value, from 1 to `most`.
template <size_t most, class Visit>
HWY_INLINE void with_constant(size_t value, const Visit& visit) {
  if constexpr (most > 1) {
    if (value < most) return with_constant<most - 1>(value, visit);
  }
  visit(std::integral_constant<size_t, most>());
}
template <class Visit>
HWY_INLINE void with_bool(bool value, const Visit& visit) {
  value ? visit(std::true_type()) : visit(std::false_type());
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
