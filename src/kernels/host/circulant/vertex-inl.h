// The slice of a batch that a vertex of a circulant layer processes.
#if defined(TESSERA_CIRCULANT_VERTEX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CIRCULANT_VERTEX_INL_H_
#undef TESSERA_CIRCULANT_VERTEX_INL_H_
#else
#define TESSERA_CIRCULANT_VERTEX_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/lane_columns-inl.h"
#include "kernels/host/circulant/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::fourier {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

class CirculantVertex {
 public:
  // The fields that have the features of x and of y.
  CirculantVertex(const program::Vertex& v, const FieldView& in, const FieldView& out, const FieldView& c,
                  float* scratch, bool gradients)
      : transposed_(v.params[circulant_param::transposed] != 0),
        embedding_(shape_of(v, in, out, c)),
        size_(embedding_.size),
        layout_(size_, gradients),
        table_(fourier_roots(std::max(8U, size_ / 8))),
        scratch_(scratch) {}

  void forward(const FieldView& x, const FieldView& c, const FieldView& y) const {
    transform_taps(c);
    const Samples in = samples_of(x, transposed_), out = samples_of(y, transposed_);
    each_lane_tile(in.count, [&](const LaneTile& tile) HWY_ATTR {
      load_columns(in, tile, size_, columns());
      walk(Convolution<false>{{columns()}, table_, spectrum()}, size_);
      store_columns(columns(), tile, out);
    });
  }

  void input_gradient(const FieldView& dy, const FieldView& c, const FieldView& dx) const {
    transform_taps(c);
    const Samples in = samples_of(dy, transposed_), out = samples_of(dx, transposed_);
    each_lane_tile(in.count, [&](const LaneTile& tile) HWY_ATTR {
      load_columns(in, tile, size_, columns());
      walk(Convolution<true>{{columns()}, table_, spectrum()}, size_);
      store_columns(columns(), tile, out);
    });
  }

  void gradients(const FieldView& x, const FieldView& dy, const FieldView& c, const FieldView& dx,
                 const FieldView& dc) const {
    if (!dx.empty()) transform_taps(c);
    std::fill_n(totals(), size_, 0.0F);
    const Samples in = samples_of(x, transposed_), out = samples_of(dy, transposed_);
    each_lane_tile(in.count, [&](const LaneTile& tile) HWY_ATTR {
      load_columns(in, tile, size_, x_columns());
      load_columns(out, tile, size_, columns());
      if (dx.empty()) {
        walk(Correlations<false>{{x_columns(), columns()}, table_, spectrum()}, size_);
      } else {
        walk(Correlations<true>{{x_columns(), columns()}, table_, spectrum()}, size_);
        store_columns(columns(), tile, samples_of(dx, transposed_));
      }
      add_lane_totals(x_columns(), size_, totals());
    });
    store_taps(dc);
  }

 private:
  float* spectrum() const { return scratch_ + layout_.spectrum; }
  float* totals() const { return scratch_ + layout_.totals; }
  float* columns() const { return scratch_ + layout_.columns; }
  float* x_columns() const { return scratch_ + layout_.x; }

  // Values of the spectrum are those of points 0 and 1, and of pairs of points that are complex.
  float scale(size_t point) const { return (point < 2 ? 1.0F : 2.0F) / static_cast<float>(size_); }

  void transform_taps(const FieldView& c) const {
    float* lanes = columns();
    std::fill_n(lanes, column_of(size_), 0.0F);
    for (int64_t t = embedding_.begin; t < embedding_.end; ++t)
      lanes[column_of(embedding_.position(t))] =
          c.as<const float>()[static_cast<int64_t>(embedding_.tap(t)) * c.col_stride];
    walk(Analysis{{lanes}, table_}, size_);
    for (size_t p = 0; p < size_; ++p) spectrum()[p] = scale(p) * lanes[column_of(p)];
  }

  void store_taps(const FieldView& dc) const {
    float* lanes = columns();
    std::fill_n(lanes, column_of(size_), 0.0F);
    for (size_t p = 0; p < size_; ++p) lanes[column_of(p)] = scale(p) * totals()[p];
    walk(Synthesis{{lanes}, table_}, size_);
    float* to = dc.as<float>();
    for (uint32_t tap = 0; tap < dc.cols; ++tap) to[tap * dc.col_stride] = 0;
    for (int64_t t = embedding_.begin; t < embedding_.end; ++t)
      to[static_cast<int64_t>(embedding_.tap(t)) * dc.col_stride] += lanes[column_of(embedding_.position(t))];
  }

  const bool transposed_;
  const CirculantEmbedding embedding_;
  const uint32_t size_;
  const CirculantScratch layout_;
  const FourierRoots* table_;
  float* scratch_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::fourier
HWY_AFTER_NAMESPACE();
#endif
