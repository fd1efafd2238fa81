// The groups of a Kronecker-sparse factor, one after another, and its products.
#if defined(TESSERA_KRONECKER_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KRONECKER_PRODUCT_INL_H_
#undef TESSERA_KRONECKER_PRODUCT_INL_H_
#else
#define TESSERA_KRONECKER_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/kronecker/broadcast_tile-inl.h"
#include "kernels/host/kronecker/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Features of a group, of all samples.
inline Samples group_features(const Samples& all, const GroupFeatures& group, uint32_t d) {
  Samples part = all;
  part.data += group.first * all.feature_stride;
  part.features = group.count;
  part.feature_stride *= d;
  return part;
}

inline bool is_in_columns(const Samples& x) { return x.sample_stride == 1; }

// Calls visit(tile) for the samples [begin, end) in strips.
template <class Visit>
HWY_INLINE void each_kronecker_strip(uint32_t samples, const Visit& visit) {
  for (uint32_t begin = 0; begin < samples; begin += kKroneckerStrip) {
    const uint32_t count = std::min(kKroneckerStrip, samples - begin);
    visit(LaneTile{begin, count, round_up(count, static_cast<uint32_t>(kLanes))});
  }
}

// A product of a group's weight, or of its transpose, with samples in lanes.
struct LaneProduct {
  const float* weight;
  size_t row_stride;   // of results
  size_t term_stride;  // of features
};

// to = weight · columns, for the features of a group: `columns` has `terms` of them, `to` has to.features.
inline void multiply_lanes(const LaneProduct& p, const float* columns, uint32_t terms, const LaneTile& tile,
                           const Samples& to, float* staging) {
  if (to.features == 0) return;
  const bool direct = is_in_columns(to);
  run_broadcast_product({.vectors = columns,
                         .vector_step = tile.lanes,
                         .factors = p.weight,
                         .factor_stride = p.row_stride,
                         .factor_step = p.term_stride,
                         .terms = terms,
                         .sums = direct ? to.at(tile.begin, 0) : staging,
                         .sum_step = direct ? static_cast<size_t>(to.feature_stride) : tile.lanes},
                        to.features, direct ? tile.count : tile.lanes);
  if (!direct) store_samples(staging, tile, to);
}

class KroneckerForward {
 public:
  KroneckerForward(const KroneckerFactor& factor, const float* weight, float* scratch)
      : f_(factor), panels_(factor), weight_(weight), scratch_(scratch) {}

  void run(const Samples& x, const Samples& y) const {
    for (uint32_t g = 0; g < f_.groups(); ++g) {
      const KroneckerGroup group(f_, g, x.features, y.features);
      const Samples in = group_features(x, group.in, f_.d), out = group_features(y, group.out, f_.d);
      const LaneProduct product{weight_ + size_t{g} * f_.b * f_.c, f_.c, 1};
      each_kronecker_strip(y.count, [&](const LaneTile& tile) HWY_ATTR {
        float* columns = scratch_ + panels_.in;
        load_samples(in, tile, in.features, columns);
        multiply_lanes(product, columns, in.features, tile, out, scratch_ + panels_.out);
      });
    }
  }

 private:
  KroneckerFactor f_;
  KroneckerPanels panels_;
  const float* weight_;
  float* scratch_;
};

// dX and the gradient of the weight; either may be null.
class KroneckerGradients {
 public:
  KroneckerGradients(const KroneckerFactor& factor, const float* weight, float* dweight, float* scratch)
      : f_(factor), panels_(factor), weight_(weight), dweight_(dweight), scratch_(scratch) {}

  void run(const Samples& x, const Samples& dy, const Samples& dx, bool adds) const {
    for (uint32_t g = 0; g < f_.groups(); ++g) {
      const KroneckerGroup group(f_, g, x.features, dy.features);
      const Samples in = group_features(x, group.in, f_.d), gradient = group_features(dy, group.out, f_.d);
      const Samples result = dx.data == nullptr ? dx : group_features(dx, group.in, f_.d);
      const size_t at = size_t{g} * f_.b * f_.c;
      each_kronecker_strip(dy.count, [&](const LaneTile& tile) HWY_ATTR {
        float* columns = scratch_ + panels_.out;
        load_samples(gradient, tile, gradient.features, columns);
        if (dx.data != nullptr)
          multiply_lanes({weight_ + at, 1, f_.c}, columns, gradient.features, tile, result,
                         scratch_ + panels_.in);
        if (dweight_ != nullptr)
          add_weight_gradient(in, columns, gradient.features, tile, dweight_ + at, adds || tile.begin > 0);
      });
      if (dweight_ != nullptr && !adds) clear_rest(group, dweight_ + at);
    }
  }

 private:
  // dW[r][q] += Σ dy[r][j] · x[j][q] over the samples of a strip: vectors lie along q.
  void add_weight_gradient(const Samples& x, const float* dy, uint32_t outputs, const LaneTile& tile,
                           float* dw, bool adds) const {
    if (x.features == 0 || outputs == 0) return;
    float* rows = scratch_ + panels_.in_rows;
    const size_t step = padded(x.features);
    load_rows(x, tile, rows, step);
    run_broadcast_product({.vectors = rows,
                           .vector_step = step,
                           .factors = dy,
                           .factor_stride = tile.lanes,
                           .factor_step = 1,
                           .terms = tile.count,
                           .sums = dw,
                           .sum_step = f_.c,
                           .adds = adds},
                          outputs, x.features);
  }

  // The samples of a strip as rows.
  void load_rows(const Samples& x, const LaneTile& tile, float* rows, size_t step) const {
    Samples swapped = x;  // a row of features is a tile of lanes
    std::swap(swapped.count, swapped.features);
    std::swap(swapped.sample_stride, swapped.feature_stride);
    swapped.data = x.at(tile.begin, 0);
    swapped.features = tile.count;
    load_samples(swapped, {0, x.features, static_cast<uint32_t>(step)}, tile.count, rows);
  }

  // Weights of features that x or y lacks have no gradient.
  void clear_rest(const KroneckerGroup& group, float* dw) const {
    for (uint32_t r = 0; r < f_.b; ++r, dw += f_.c)
      std::fill(dw + (r < group.out.count ? group.in.count : 0), dw + f_.c, 0.0F);
  }

  KroneckerFactor f_;
  KroneckerPanels panels_;
  const float* weight_;
  float* dweight_;
  float* scratch_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
