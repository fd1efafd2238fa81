// Products with factors of large strides, for whole samples in rows.
#if defined(TESSERA_KRONECKER_STRIDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KRONECKER_STRIDED_INL_H_
#undef TESSERA_KRONECKER_STRIDED_INL_H_
#else
#define TESSERA_KRONECKER_STRIDED_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/kronecker/layout.h"
#include "kernels/host/kronecker/strided_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// The products of both codelets; results that are null are not computed.
class KroneckerStrided {
 public:
  KroneckerStrided(const KroneckerFactor& factor, float* scratch)
      : f_(factor), panel_(scratch + KroneckerPanels(factor).strided) {}

  void forward(const float* weight, const Samples& x, const Samples& y) const {
    each_lanes([&](uint32_t block, uint32_t t, uint32_t lanes) HWY_ATTR {
      load_panel(weight, block, t, lanes);
      run_strided_product({.a = terms_of(x, block * f_.c, t),
                           .b = {panel_, f_.c * kLanes, kLanes},
                           .terms = f_.c,
                           .sums = y.at(0, block * f_.b * f_.d + t),
                           .row_step = static_cast<size_t>(y.sample_stride),
                           .col_step = f_.d},
                          y.count, f_.b, lanes);
    });
  }

  void input_gradient(const float* weight, const Samples& dy, const Samples& dx) const {
    each_lanes([&](uint32_t block, uint32_t t, uint32_t lanes) HWY_ATTR {
      load_panel(weight, block, t, lanes);
      run_strided_product({.a = terms_of(dy, block * f_.b, t),
                           .b = {panel_, kLanes, f_.c * kLanes},
                           .terms = f_.b,
                           .sums = dx.at(0, block * f_.c * f_.d + t),
                           .row_step = static_cast<size_t>(dx.sample_stride),
                           .col_step = f_.d},
                          dx.count, f_.c, lanes);
    });
  }

  void weight_gradient(const Samples& x, const Samples& dy, float* dweight) const {
    each_lanes([&](uint32_t block, uint32_t t, uint32_t lanes) HWY_ATTR {
      run_strided_product({.a = samples_from_feature(dy, block * f_.b, t),
                           .b = samples_from_feature(x, block * f_.c, t),
                           .terms = dy.count,
                           .sums = panel_,
                           .row_step = f_.c * kLanes,
                           .col_step = kLanes},
                          f_.b, f_.c, lanes);
      transpose(panel_, kLanes, weights(), lanes, dweight + (block * f_.d + t) * weights(), weights());
    });
  }

 private:
  size_t weights() const { return size_t{f_.b} * f_.c; }

  // Calls visit(i, t, lanes) for groups (i, t) to (i, t + lanes).
  template <class Visit>
  void each_lanes(const Visit& visit) const {
    for (uint32_t i = 0; i < f_.a; ++i)
      for (uint32_t t = 0; t < f_.d; t += kLanes) visit(i, t, std::min<uint32_t>(kLanes, f_.d - t));
  }

  // Weights of the groups as lanes.
  void load_panel(const float* weight, uint32_t block, uint32_t t, uint32_t lanes) const {
    transpose(weight + (block * f_.d + t) * weights(), weights(), lanes, weights(), panel_, kLanes);
  }

  // Rows are samples, terms features.
  StridedVectors terms_of(const Samples& x, uint32_t row, uint32_t t) const {
    return {x.at(0, row * f_.d + t), static_cast<size_t>(x.sample_stride), f_.d};
  }
  // Rows are features, terms samples.
  StridedVectors samples_from_feature(const Samples& x, uint32_t row, uint32_t t) const {
    return {x.at(0, row * f_.d + t), f_.d, static_cast<size_t>(x.sample_stride)};
  }

  KroneckerFactor f_;
  float* panel_;
};

// Whether samples are in rows and complete, and most lanes hold a group.
inline bool suits_strided(const KroneckerFactor& f, const Samples& x, const Samples& y) {
  return x.feature_stride == 1 && y.feature_stride == 1 && x.features == f.inputs() &&
         y.features == f.outputs() && suits_group_lanes(f, x.count, static_cast<uint32_t>(kLanes));
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
