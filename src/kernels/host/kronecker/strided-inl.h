// Products with factors of large strides, for samples in rows.
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
    each_lanes(x, y, [&](const Lanes& at) HWY_ATTR {
      load_panel(weight, at);
      run_strided_product({.a = {x.pointer_to(0, at.groups.in.first), sample_step(x), f_.d},
                           .b = {panel_, f_.c * kLanes, kLanes},
                           .terms = at.groups.in.count,
                           .sums = y.pointer_to(0, at.groups.out.first),
                           .row_step = sample_step(y),
                           .col_step = f_.d},
                          y.count, at.groups.out.count, at.count);
    });
  }

  void input_gradient(const float* weight, const Samples& dy, const Samples& dx) const {
    each_lanes(dx, dy, [&](const Lanes& at) HWY_ATTR {
      load_panel(weight, at);
      run_strided_product({.a = {dy.pointer_to(0, at.groups.out.first), sample_step(dy), f_.d},
                           .b = {panel_, kLanes, f_.c * kLanes},
                           .terms = at.groups.out.count,
                           .sums = dx.pointer_to(0, at.groups.in.first),
                           .row_step = sample_step(dx),
                           .col_step = f_.d},
                          dx.count, at.groups.in.count, at.count);
    });
  }

  void weight_gradient(const Samples& x, const Samples& dy, float* dweight) const {
    each_lanes(x, dy, [&](const Lanes& at) HWY_ATTR {
      if (at.groups.out.count < f_.b || at.groups.in.count < f_.c)
        std::fill_n(panel_, weights() * kLanes, 0.0F);
      run_strided_product({.a = {dy.pointer_to(0, at.groups.out.first), f_.d, sample_step(dy)},
                           .b = {x.pointer_to(0, at.groups.in.first), f_.d, sample_step(x)},
                           .terms = dy.count,
                           .sums = panel_,
                           .row_step = f_.c * kLanes,
                           .col_step = kLanes},
                          at.groups.out.count, at.groups.in.count, at.count);
      transpose(panel_, kLanes, weights(), at.count, dweight + at.first * weights(), weights());
    });
  }

 private:
  size_t weights() const { return size_t{f_.b} * f_.c; }
  static size_t sample_step(const Samples& x) { return static_cast<size_t>(x.sample_stride); }

  // Groups [first, first + count), which have the same numbers of features, and the features of the first
  // group.
  struct Lanes {
    size_t first;
    uint32_t count;
    KroneckerGroup groups;
  };

  template <class Visit>
  void each_lanes(const Samples& x, const Samples& y, const Visit& visit) const {
    const auto group_at = [&](uint32_t g) { return KroneckerGroup(f_, g, x.features, y.features); };
    const auto alike = [&](const KroneckerGroup& a, const KroneckerGroup& b) {
      return a.in.count == b.in.count && a.out.count == b.out.count;
    };
    for (uint32_t g = 0, count = 0; g < f_.groups(); g += count) {
      const KroneckerGroup first = group_at(g);
      count = std::min<uint32_t>(kLanes, f_.d - g % f_.d);
      while (!alike(first, group_at(g + count - 1))) --count;
      visit(Lanes{g, count, first});
    }
  }

  // Loads the weights of the groups as lanes.
  void load_panel(const float* weight, const Lanes& at) const {
    transpose(weight + at.first * weights(), weights(), at.count, weights(), panel_, kLanes);
  }

  KroneckerFactor f_;
  float* panel_;
};

// Whether samples are in rows, and most lanes hold a group.
inline bool suits_strided(const KroneckerFactor& f, const Samples& x, const Samples& y) {
  return x.feature_stride == 1 && y.feature_stride == 1 &&
         suits_group_lanes(f, x.count, static_cast<uint32_t>(kLanes));
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
