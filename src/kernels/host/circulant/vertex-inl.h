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
#include "kernels/host/circulant/line-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::fourier {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

class CirculantVertex {
 public:
  // `in` and `out` are the fields with the features of x and of y.
  CirculantVertex(const program::Vertex& v, const FieldView& in, const FieldView& out, const FieldView& c,
                  float* scratch, bool gradients)
      : transposed_(v.params[circulant_param::transposed] != 0),
        embedding_(shape_of(v, in, out, c)),
        size_(embedding_.size),
        layout_(size_, gradients),
        table_(fourier_roots(std::max(8U, size_ / 8))),
        scratch_(scratch),
        lines_(size_, table_, columns()) {}

  void forward(const FieldView& x, const FieldView& c, const FieldView& y) const {
    convolve<false>(samples_of(x, transposed_), c, samples_of(y, transposed_));
  }

  void input_gradient(const FieldView& dy, const FieldView& c, const FieldView& dx) const {
    convolve<true>(samples_of(dy, transposed_), c, samples_of(dx, transposed_));
  }

  void gradients(const FieldView& x, const FieldView& dy, const FieldView& c, const FieldView& dx,
                 const FieldView& dc) const {
    if (!dx.empty()) transform_taps(c);
    std::fill_n(totals(), size_, 0.0F);
    const Samples in = samples_of(x, transposed_), gradient = samples_of(dy, transposed_);
    const Samples out = samples_of(dx, transposed_);
    each_lane_tile(in.count, [&](const LaneTile& tile) HWY_ATTR {
      if (is_few(tile)) {
        for (uint32_t i = 0; i < tile.count; ++i) correlate_line(in, gradient, tile.begin + i, out);
        return;
      }
      load_columns(in, tile, size_, x_columns());
      load_columns(gradient, tile, size_, columns());
      if (dx.empty()) {
        walk(Correlations<false>{{x_columns(), columns()}, table_, spectrum()}, size_);
      } else {
        walk(Correlations<true>{{x_columns(), columns()}, table_, spectrum()}, size_);
        store_columns(columns(), tile, out);
      }
      add_lane_totals(x_columns(), size_, totals());
    });
    store_taps(dc);
  }

 private:
  float* spectrum() const { return scratch_ + layout_.spectrum; }
  float* totals() const { return scratch_ + layout_.totals; }
  float* line() const { return scratch_ + layout_.line; }
  float* dy_line() const { return scratch_ + layout_.dy_line; }
  float* columns() const { return scratch_ + layout_.columns; }
  float* x_columns() const { return scratch_ + layout_.x; }

  bool has_lines() const { return circulant_has_lines(size_); }
  bool is_few(const LaneTile& tile) const { return has_lines() && tile.count <= kFewCirculantSamples; }

  template <bool conjugate>
  void convolve(const Samples& in, const FieldView& c, const Samples& out) const {
    transform_taps(c);
    each_lane_tile(in.count, [&](const LaneTile& tile) HWY_ATTR {
      if (is_few(tile)) {
        for (uint32_t i = 0; i < tile.count; ++i) {
          load_line(in, tile.begin + i, size_, line());
          lines_.split(line());
          multiply_line(line(), spectrum(), size_, conjugate);
          lines_.merge(line());
          store_line(line(), tile.begin + i, out);
        }
        return;
      }
      load_columns(in, tile, size_, columns());
      walk(Convolution<conjugate>{{columns()}, table_, spectrum()}, size_);
      store_columns(columns(), tile, out);
    });
  }

  void correlate_line(const Samples& x, const Samples& dy, uint32_t sample, const Samples& dx) const {
    load_line(x, sample, size_, line());
    lines_.split(line());
    load_line(dy, sample, size_, dy_line());
    lines_.split(dy_line());
    add_product_of_lines(line(), dy_line(), totals(), size_);
    if (dx.data == nullptr) return;
    multiply_line(dy_line(), spectrum(), size_, true);
    lines_.merge(dy_line());
    store_line(dy_line(), sample, dx);
  }

  // The spectrum has the values of points 0 and 1, and of pairs of points that are complex.
  float scale(size_t point) const { return (point < 2 ? 1.0F : 2.0F) / static_cast<float>(size_); }

  void transform_taps(const FieldView& c) const {
    float* values = spectrum();
    std::fill_n(values, size_, 0.0F);
    const float* taps = c.as<const float>();
    for (int64_t t = embedding_.begin; t < embedding_.end; ++t)
      values[embedding_.position(t)] = taps[static_cast<int64_t>(embedding_.tap(t)) * c.col_stride];
    if (has_lines()) {
      lines_.split(values);
    } else {
      spread(values);
      walk(Analysis{{columns()}, table_}, size_);
      gather(values);
    }
    for (size_t p = 0; p < size_; ++p) values[p] *= scale(p);
  }

  void store_taps(const FieldView& dc) const {
    float* values = totals();
    for (size_t p = 0; p < size_; ++p) values[p] *= scale(p);
    if (has_lines()) {
      lines_.merge(values);
    } else {
      spread(values);
      walk(Synthesis{{columns()}, table_}, size_);
      gather(values);
    }
    float* to = dc.as<float>();
    for (uint32_t tap = 0; tap < dc.cols; ++tap) to[tap * dc.col_stride] = 0;
    for (int64_t t = embedding_.begin; t < embedding_.end; ++t)
      to[static_cast<int64_t>(embedding_.tap(t)) * dc.col_stride] += values[embedding_.position(t)];
  }

  // Loads a single sample into the first lane of the columns.
  void spread(const float* values) const {
    std::fill_n(columns(), column_of(size_), 0.0F);
    for (size_t p = 0; p < size_; ++p) columns()[column_of(p)] = values[p];
  }
  void gather(float* values) const {
    for (size_t p = 0; p < size_; ++p) values[p] = columns()[column_of(p)];
  }

  const bool transposed_;
  const CirculantEmbedding embedding_;
  const uint32_t size_;
  const CirculantScratch layout_;
  const FourierRoots* table_;
  float* scratch_;
  const LineTransform lines_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::fourier
HWY_AFTER_NAMESPACE();
#endif
