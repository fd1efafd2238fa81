// Forward butterflies of single samples: vectors lie along the features.
//
// Where the stride is a vector or more, kLanes pairs have adjacent matrices, whose elements are separated by
// transposing four vectors block by block. That permutes the pairs of a vector; the features are therefore
// kept in the same order, so that nothing has to be permuted back.
#if defined(TESSERA_BUTTERFLY_FEATURES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BUTTERFLY_FEATURES_INL_H_
#undef TESSERA_BUTTERFLY_FEATURES_INL_H_
#else
#define TESSERA_BUTTERFLY_FEATURES_INL_H_
#endif

#include <array>
#include <bit>

#include "kernels/host/butterfly/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

using LaneIndices = std::array<int32_t, kLanes>;
inline constexpr int32_t kLaneBlocks = static_cast<int32_t>(kLanes) / 4;
inline constexpr uint32_t kLaneBits = std::countr_zero(kLanes);

// The feature, of kLanes features, that a lane holds; and the lane of a feature.
constexpr int32_t feature_of_lane(int32_t lane) { return lane % 4 * kLaneBlocks + lane / 4; }
constexpr int32_t lane_of_feature(int32_t feature) {
  return feature % kLaneBlocks * 4 + feature / kLaneBlocks;
}

template <class Index>
constexpr LaneIndices lane_indices(const Index& index) {
  LaneIndices lanes{};
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = index(static_cast<int32_t>(i));
  return lanes;
}

// The factor of a stride below a vector: for each lane, the features of its pair, and the coefficients of its
// row, as indices into the two vectors of coefficients of a vector's matrices.
struct ShortStride {
  LaneIndices x0, x1, t0, t1;

  constexpr ShortStride(uint32_t bit, bool tied) : x0(), x1(), t0(), t1() {
    const auto stride = static_cast<int32_t>(1U << bit);
    for (size_t i = 0; i < kLanes; ++i) {
      const int32_t f = feature_of_lane(static_cast<int32_t>(i)), low = f & (stride - 1);
      const int32_t matrix = tied ? low : ((f >> (bit + 1)) << bit) + low;
      x0[i] = lane_of_feature(f & ~stride);
      x1[i] = lane_of_feature(f | stride);
      t0[i] = 4 * matrix + ((f & stride) != 0 ? 2 : 0);
      t1[i] = t0[i] + 1;
    }
  }
};

class FeatureButterfly {
 public:
  // Columns hold the values of one sample.
  FeatureButterfly(const StackTwiddle& twiddle, float* columns)
      : twiddle_(twiddle), s_(twiddle.shape), n_(s_.n()), columns_(columns) {}

  void load(const Samples& x, uint32_t sample) const {
    static constexpr LaneIndices kOrder = lane_indices(feature_of_lane);
    const auto order = hn::SetTableIndices(d, kOrder.data());
    const uint32_t given = std::min(x.features, n_);
    for (uint32_t f = 0; x.feature_stride != 1 && f < given; ++f) columns_[f] = *x.pointer_to(sample, f);
    const float* from = x.feature_stride == 1 ? x.pointer_to(sample, 0) : columns_;
    for (uint32_t f = 0; f < n_; f += kLanes)
      hn::Store(
          hn::TableLookupLanes(load_lanes(from + (f < given ? f : 0), f < given ? given - f : 0), order), d,
          columns_ + f);
  }

  void store(const Samples& y, uint32_t sample) const {
    static constexpr LaneIndices kOrder = lane_indices(lane_of_feature);
    const auto order = hn::SetTableIndices(d, kOrder.data());
    float* to = y.feature_stride == 1 ? y.pointer_to(sample, 0) : columns_;
    for (uint32_t f = 0; f < y.features; f += kLanes)
      store_lanes(hn::TableLookupLanes(hn::Load(d, columns_ + f), order), to + f,
                  to == columns_ ? kLanes : y.features - f);
    for (uint32_t f = 0; y.feature_stride != 1 && f < y.features; ++f) *y.pointer_to(sample, f) = columns_[f];
  }

  void run() const {
    for (uint32_t block = 0; block < s_.blocks; ++block) {
      const bool decreasing = s_.decreasing != (block % 2 == 1);
      if (!decreasing) short_strides(block, decreasing);
      for (uint32_t i = kLaneBits; i < s_.log_n; ++i)
        long_stride(block, decreasing ? s_.log_n - 1 - (i - kLaneBits) : i, decreasing);
      if (decreasing) short_strides(block, decreasing);
    }
  }

 private:
  static constexpr hn::ScalableTag<float> d{};

  const float* factor(uint32_t block, uint32_t bit, bool decreasing) const {
    if (s_.tied) return twiddle_.data + 4 * ((size_t{1} << bit) - 1);
    return twiddle_.data + (block * s_.log_n + (decreasing ? s_.log_n - 1 - bit : bit)) * twiddle_.row_stride;
  }

  void long_stride(uint32_t block, uint32_t bit, bool decreasing) const {
    const float* t = factor(block, bit, decreasing);
    const size_t stride = size_t{1} << bit, per_group = s_.tied ? 0 : stride;
    for (size_t begin = 0; begin < n_; begin += 2 * stride, t += 4 * per_group)
      for (size_t low = 0; low < stride; low += kLanes) {
        const float* matrices = t + 4 * low;
        auto a = hn::LoadU(d, matrices), b = hn::LoadU(d, matrices + kLanes);
        auto c = hn::LoadU(d, matrices + 2 * kLanes), e = hn::LoadU(d, matrices + 3 * kLanes);
        transpose_four(d, a, b, c, e);
        float* x = columns_ + begin + low;
        const auto x0 = hn::Load(d, x), x1 = hn::Load(d, x + stride);
        hn::Store(hn::MulAdd(b, x1, hn::Mul(a, x0)), d, x);
        hn::Store(hn::MulAdd(e, x1, hn::Mul(c, x0)), d, x + stride);
      }
  }

  void short_strides(uint32_t block, bool decreasing) const {
    with_bool(s_.tied, [&](auto tied) HWY_ATTR {
      for (uint32_t i = 0; i < kLaneBits; ++i)
        short_stride(decreasing ? kLaneBits - 1 - i : i, block, decreasing, tied);
    });
  }

  template <bool tied>
  void short_stride(uint32_t bit, uint32_t block, bool decreasing, std::bool_constant<tied>) const {
    static constexpr auto kTables = [] {
      std::array<ShortStride, 4> tables = {ShortStride(0, tied), ShortStride(1, tied), ShortStride(2, tied),
                                           ShortStride(3, tied)};
      return tables;
    }();
    const hn::RebindToSigned<decltype(d)> di;
    const ShortStride& table = kTables[bit];
    const auto wrapped = [&](const LaneIndices& indices) HWY_ATTR {
      return hn::IndicesFromVec(d, hn::And(hn::LoadU(di, indices.data()), hn::Set(di, int32_t{kLanes - 1})));
    };
    const auto x0 = hn::SetTableIndices(d, table.x0.data()), x1 = hn::SetTableIndices(d, table.x1.data());
    const auto t0 = wrapped(table.t0), t1 = wrapped(table.t1);
    const auto upper =
        hn::RebindMask(d, hn::Gt(hn::LoadU(di, table.t0.data()), hn::Set(di, int32_t{kLanes - 1})));
    const float* t = factor(block, bit, decreasing);
    for (size_t f = 0; f < n_; f += kLanes, t += tied ? 0 : 2 * kLanes) {
      const auto low = hn::LoadU(d, t), high = hn::LoadU(d, t + kLanes), x = hn::Load(d, columns_ + f);
      const auto c0 = hn::IfThenElse(upper, hn::TableLookupLanes(high, t0), hn::TableLookupLanes(low, t0));
      const auto c1 = hn::IfThenElse(upper, hn::TableLookupLanes(high, t1), hn::TableLookupLanes(low, t1));
      hn::Store(hn::MulAdd(c1, hn::TableLookupLanes(x, x1), hn::Mul(c0, hn::TableLookupLanes(x, x0))), d,
                columns_ + f);
    }
  }

  StackTwiddle twiddle_;
  ButterflyShape s_;
  uint32_t n_;
  float* columns_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
