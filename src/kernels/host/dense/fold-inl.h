// Adding the products of an input gradient to the images under a window.
#if defined(TESSERA_DENSE_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_FOLD_INL_H_
#undef TESSERA_DENSE_FOLD_INL_H_
#else
#define TESSERA_DENSE_FOLD_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Columns [col, col + cols) of some images of dX.
class ImageFold {
 public:
  ImageFold(const program::Vertex& v, const FoldedImages& images, uint32_t first_image, uint32_t end_image,
            uint32_t col, uint32_t cols)
      : dx_(v.fields[panel_input_gradient_field::dx]),
        relu_(v.fields[panel_input_gradient_field::relu]),
        window_(images.window),
        begin_(first_image * window_.positions()),
        end_(end_image * window_.positions()),
        col_(col),
        cols_(cols),
        alpha_(DenseScalars(v.fields[panel_input_gradient_field::scalars], false).alpha) {}

  uint32_t col() const { return col_; }
  uint32_t cols() const { return cols_; }

  void clear() const {
    for (uint32_t place = begin_; place < end_; ++place) std::fill_n(elements(place), cols_, 0.0F);
  }

  // Adds the sums of window positions from `first` on, kDenseSumStep apart, to the elements under a tap.
  void add(uint32_t tap, uint32_t first, uint32_t count, const float* sums) const {
    window_.each_inside(tap, first, first + count,
                        [&](uint32_t position, size_t place, uint32_t some) HWY_ATTR {
                          const float* from = sums + size_t{position - first} * kDenseSumStep;
                          for (uint32_t i = 0; i < some; ++i, from += kDenseSumStep)
                            add_row(from, elements(static_cast<uint32_t>(place) + i * window_.stride_across));
                        });
  }

  // Clears elements where the gradient of the ReLU is 0.
  void mask() const {
    if (relu_.empty()) return;
    const PanelFloats d;
    for (uint32_t place = begin_; place < end_; ++place) {
      const float* relu = row_of<const float>(relu_, place) + col_;
      float* to = elements(place);
      each_vector(cols_, [&](size_t i, size_t count) HWY_ATTR {
        const auto is_clear = hn::Le(load_some(relu + i, count), hn::Zero(d));
        store_some(hn::IfThenZeroElse(is_clear, load_some(to + i, count)), to + i, count);
      });
    }
  }

 private:
  float* elements(uint32_t place) const { return row_of<float>(dx_, place) + col_; }

  HWY_INLINE void add_row(const float* sums, float* to) const {
    const PanelFloats d;
    each_vector(cols_, [&](size_t i, size_t count) HWY_ATTR {
      const auto sum = hn::MulAdd(hn::Set(d, alpha_), hn::LoadU(d, sums + i), load_some(to + i, count));
      store_some(sum, to + i, count);
    });
  }

  const FieldView& dx_;
  const FieldView& relu_;
  const Window& window_;
  const uint32_t begin_, end_;  // positions of the images
  const uint32_t col_, cols_;
  const float alpha_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
