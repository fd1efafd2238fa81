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
#include "kernels/host/kronecker/dots-inl.h"
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
inline bool is_in_rows(const Samples& x) { return x.feature_stride == 1; }

// Calls visit(tile) for the samples in strips.
template <class Visit>
HWY_INLINE void each_kronecker_strip(uint32_t samples, const Visit& visit) {
  for (uint32_t begin = 0; begin < samples; begin += kKroneckerStrip) {
    const uint32_t count = std::min(kKroneckerStrip, samples - begin);
    visit(LaneTile{begin, count, round_up(count, static_cast<uint32_t>(kLanes))});
  }
}

// The samples of a strip as features × samples, so that rows of features serve as columns of lanes.
inline Samples swapped_strip(const Samples& x, const LaneTile& tile) {
  return {x.pointer_to(tile.begin, 0), x.features, tile.count, x.feature_stride, x.sample_stride};
}

inline void load_kronecker_rows(const Samples& x, const LaneTile& tile, float* rows, size_t step) {
  load_samples(swapped_strip(x, tile), {0, x.features, static_cast<uint32_t>(step)}, tile.count, rows);
}

inline void store_kronecker_rows(const float* rows, size_t step, const LaneTile& tile, const Samples& y) {
  store_samples(rows, {0, y.features, static_cast<uint32_t>(step)}, swapped_strip(y, tile));
}

// A product of a group's weight, or of its transpose, with samples in lanes.
struct LaneProduct {
  const float* weight;
  size_t row_stride;   // from result to result
  size_t term_stride;  // from feature to feature
};

// to = weight · columns, for the features of a group: `columns` has `terms` features, `to` has to.features.
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
                         .sums = direct ? to.pointer_to(tile.begin, 0) : staging,
                         .sum_step = direct ? static_cast<size_t>(to.feature_stride) : tile.lanes},
                        to.features, direct ? tile.count : tile.lanes);
  if (!direct) store_samples(staging, tile, to);
}

// The product of copied rows of samples with vectors of weights along the results, term after term.
struct RowProduct {
  const float* weight;
  size_t term_step;
  const float* rows;
  size_t row_step;
  uint32_t terms;
};

inline void multiply_rows(const RowProduct& p, const LaneTile& tile, const Samples& to, float* staging) {
  if (to.features == 0) return;
  const bool direct = is_in_rows(to);
  const size_t step = direct ? static_cast<size_t>(to.sample_stride) : padded(to.features);
  run_broadcast_product({.vectors = p.weight,
                         .vector_step = p.term_step,
                         .factors = p.rows,
                         .factor_stride = p.row_step,
                         .factor_step = 1,
                         .terms = p.terms,
                         .sums = direct ? to.pointer_to(tile.begin, 0) : staging,
                         .sum_step = step},
                        tile.count, to.features);
  if (!direct) store_kronecker_rows(staging, step, tile, to);
}

class KroneckerForward {
 public:
  KroneckerForward(const KroneckerFactor& factor, const float* weight, float* scratch)
      : f_(factor), panels_(factor), weight_(weight), scratch_(scratch) {}

  void run(const Samples& x, const Samples& y) const {
    const bool few = y.count <= kFewSamples;
    for (uint32_t g = 0; g < f_.groups(); ++g) {
      const KroneckerGroup group(f_, g, x.features, y.features);
      const Samples in = group_features(x, group.in, f_.d), out = group_features(y, group.out, f_.d);
      const float* weight = weight_ + size_t{g} * f_.b * f_.c;
      if (few) {
        run_dots(weight, in, out);
      } else if (is_in_rows(in) && is_in_rows(out)) {
        run_rows(weight, in, out);
      } else {
        run_lanes(weight, in, out);
      }
    }
  }

 private:
  void run_lanes(const float* weight, const Samples& in, const Samples& out) const {
    each_kronecker_strip(out.count, [&](const LaneTile& tile) HWY_ATTR {
      float* columns = scratch_ + panels_.in;
      load_samples(in, tile, in.features, columns);
      multiply_lanes({weight, f_.c, 1}, columns, in.features, tile, out, scratch_ + panels_.out);
    });
  }

  void run_rows(const float* weight, const Samples& in, const Samples& out) const {
    float *along_outputs = scratch_ + panels_.weight, *rows = scratch_ + panels_.in;
    const size_t step = padded(f_.b), row_step = padded(in.features);
    transpose(weight, f_.c, out.features, in.features, along_outputs, step);
    each_kronecker_strip(out.count, [&](const LaneTile& tile) HWY_ATTR {
      load_kronecker_rows(in, tile, rows, row_step);
      multiply_rows({along_outputs, step, rows, row_step, in.features}, tile, out, scratch_ + panels_.out);
    });
  }

  void run_dots(const float* weight, const Samples& in, const Samples& out) const {
    float *rows = scratch_ + panels_.in, *sums = scratch_ + panels_.out;
    const LaneTile tile{0, out.count, round_up(out.count, static_cast<uint32_t>(kLanes))};
    const size_t row_step = padded(in.features), step = padded(out.features);
    load_kronecker_rows(in, tile, rows, row_step);
    for (uint32_t j = 0; j < out.count; ++j)
      run_row_dots({weight, f_.c, rows + j * row_step, in.features}, out.features, sums + j * step);
    store_kronecker_rows(sums, step, tile, out);
  }

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
    const bool few = dy.count <= kFewSamples;
    for (uint32_t g = 0; g < f_.groups(); ++g) {
      const KroneckerGroup group(f_, g, x.features, dy.features);
      const Samples in = group_features(x, group.in, f_.d), gradient = group_features(dy, group.out, f_.d);
      const Samples result = dx.data == nullptr ? Samples() : group_features(dx, group.in, f_.d);
      const bool rows = few || (is_in_rows(gradient) && (dx.data == nullptr || is_in_rows(result)));
      const size_t at = size_t{g} * f_.b * f_.c;
      each_kronecker_strip(dy.count, [&](const LaneTile& tile) HWY_ATTR {
        const Factors factors = rows ? multiply_in_rows(weight_ + at, gradient, tile, result)
                                     : multiply_in_lanes(weight_ + at, gradient, tile, result);
        if (dweight_ != nullptr)
          add_weight_gradient(in, factors, gradient.features, tile, dweight_ + at, adds || tile.begin > 0);
      });
      if (dweight_ != nullptr && !adds) clear_rest(group, dweight_ + at);
    }
  }

 private:
  // The copies of a strip's dY.
  struct Factors {
    const float* data;
    size_t feature_stride;
    size_t sample_stride;
  };

  Factors multiply_in_lanes(const float* weight, const Samples& dy, const LaneTile& tile,
                            const Samples& dx) const {
    float* columns = scratch_ + panels_.out;
    load_samples(dy, tile, dy.features, columns);
    if (dx.data != nullptr)
      multiply_lanes({weight, 1, f_.c}, columns, dy.features, tile, dx, scratch_ + panels_.in);
    return {columns, tile.lanes, 1};
  }

  Factors multiply_in_rows(const float* weight, const Samples& dy, const LaneTile& tile,
                           const Samples& dx) const {
    float* rows = scratch_ + panels_.out;
    const size_t step = padded(dy.features);
    load_kronecker_rows(dy, tile, rows, step);
    if (dx.data != nullptr)
      multiply_rows({weight, f_.c, rows, step, dy.features}, tile, dx, scratch_ + panels_.in);
    return {rows, 1, step};
  }

  // dW[r][q] += Σ dy[j][r] · x[j][q] over the samples of a strip: vectors lie along q.
  void add_weight_gradient(const Samples& x, const Factors& dy, uint32_t outputs, const LaneTile& tile,
                           float* dw, bool adds) const {
    if (x.features == 0 || outputs == 0) return;
    float* rows = scratch_ + panels_.in_rows;
    const size_t step = padded(x.features);
    load_kronecker_rows(x, tile, rows, step);
    run_broadcast_product({.vectors = rows,
                           .vector_step = step,
                           .factors = dy.data,
                           .factor_stride = dy.feature_stride,
                           .factor_step = dy.sample_stride,
                           .terms = tile.count,
                           .sums = dw,
                           .sum_step = f_.c,
                           .adds = adds},
                          outputs, x.features);
  }

  // Clears the gradients of weights for features that x or y lacks.
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
