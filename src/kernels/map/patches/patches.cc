#include <algorithm>
#include <cstring>

#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/common/thread_buffer.h"
#include "kernels/map/patches/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/patches/patches.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void add_to(float* sums, const T* from, size_t count) {
  map_elements([](auto, auto a, auto b) HWY_ATTR { return hn::Add(a, b); }, count, sums, sums, from);
}

template <class T>
T* at(const program::FieldView& field, int64_t row, int64_t col) {
  return reinterpret_cast<T*>(address_of(field, row, col));
}

/// Sums in FP32 for each of a fold's results.
template <class T>
class Fold {
 public:
  explicit Fold(const PatchesVertex& p)
      : p_(p),
        w_(p.window),
        phases_(std::min(w_.stride_across, w_.width)),
        phase_cols_((w_.width - 1) / w_.stride_across + 1) {}

  /// Channels of a position are contiguous.
  void along_channels() const {
    const size_t count = p_.out.cols;
    float* sums = thread_buffer(count);
    for (uint32_t i = 0; i < p_.out.rows; ++i) {
      std::fill_n(sums, count, 0.0F);
      const uint32_t position = p_.position + i, image = position / w_.positions();
      const uint32_t row = position / w_.width % w_.height, col = position % w_.width;
      for (uint32_t tap_row = 0; tap_row < w_.kernel_height; ++tap_row) {
        const int64_t out_row = w_.out_row(row, tap_row);
        if (out_row < 0) continue;
        for (uint32_t tap_col = 0; tap_col < w_.kernel_width; ++tap_col) {
          const int64_t out_col = w_.out_col(col, tap_col);
          if (out_col >= 0)
            add_to(sums,
                   at<const T>(p_.x, place(image, out_row) + out_col,
                               first_feature(tap_row * w_.kernel_width + tap_col) + p_.feature),
                   count);
        }
      }
      convert_elements(count, at<T>(p_.out, i, 0), sums);
    }
  }

  /// Positions of a row of an image are contiguous; `out` has whole images. Sums of columns that are a stride
  /// apart, to which a tap adds, are contiguous until the row is stored.
  void along_rows() const {
    const size_t all = size_t{phases_} * phase_cols_;
    float *const sums = thread_buffer(2 * all), *const in_order = w_.stride_across == 1 ? sums : sums + all;
    const uint32_t rows = p_.out.rows / w_.width;
    for (uint32_t c = 0; c < p_.out.cols; ++c)
      for (uint32_t r = 0; r < rows; ++r) {
        std::fill_n(sums, all, 0.0F);
        for (uint32_t tap_row = 0; tap_row < w_.kernel_height; ++tap_row) {
          const int64_t out_row = w_.out_row(r % w_.height, tap_row);
          if (out_row < 0) continue;
          for (uint32_t tap_col = 0; tap_col < w_.kernel_width; ++tap_col)
            add_row(sums, place(r / w_.height, out_row), tap_row * w_.kernel_width + tap_col, tap_col, c);
        }
        if (in_order != sums) interleave(sums, in_order);
        convert_elements(w_.width, at<T>(p_.out, int64_t{r} * w_.width, c), in_order);
      }
  }

 private:
  int64_t place(uint32_t image, int64_t out_row) const {
    return (int64_t{image} * w_.out_height + out_row) * w_.out_width;
  }
  int64_t first_feature(uint32_t tap) const { return int64_t{tap} * p_.channels; }

  void add_row(float* sums, int64_t first, uint32_t tap, uint32_t tap_col, uint32_t channel) const {
    const Span cols = w_.out_cols(tap_col);
    const T* from = at<const T>(p_.x, first + cols.begin, first_feature(tap) + p_.feature + channel);
    const int64_t col = w_.col(cols.begin, tap_col);
    if (cols.size() == 0) return;
    add_to(sums + col % w_.stride_across * phase_cols_ + col / w_.stride_across, from, cols.size());
  }

  void interleave(const float* sums, float* to) const {
    if (w_.stride_across == 2 && phases_ == 2) return interleave_two(sums, sums + phase_cols_, to);
    for (uint32_t phase = 0; phase < phases_; ++phase, sums += phase_cols_)
      for (uint32_t i = 0; i < phase_cols_; ++i) to[size_t{i} * w_.stride_across + phase] = sums[i];
  }

  void interleave_two(const float* even, const float* odd, float* to) const {
    const hn::ScalableTag<float> d;
    uint32_t i = 0;
    for (; i + hn::Lanes(d) <= phase_cols_; i += static_cast<uint32_t>(hn::Lanes(d)))
      hn::StoreInterleaved2(hn::LoadU(d, even + i), hn::LoadU(d, odd + i), d, to + 2 * size_t{i});
    for (; i < phase_cols_; ++i) to[2 * size_t{i}] = even[i], to[2 * size_t{i} + 1] = odd[i];
  }

  const PatchesVertex& p_;
  const Window& w_;
  const uint32_t phases_, phase_cols_;  ///< number of phases of columns modulo the stride, and of columns of
                                        ///< a phase
};

void run_fold(const program::Vertex& v) {
  const PatchesVertex p(v);
  const bool whole_rows = p.position == 0 && p.out.rows % std::max(p.window.positions(), 1U) == 0;
  with_float_type(p.out.type, [&]<class T>(T) HWY_ATTR {
    if (p.x.col_stride == 1 && p.out.col_stride == 1)
      Fold<T>(p).along_channels();
    else if (p.x.row_stride == 1 && p.out.row_stride == 1 && whole_rows)
      Fold<T>(p).along_rows();
    else
      fold_reference(v);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(run_fold);

/// Copies what a window sees, piece by piece.
class Patches {
 public:
  explicit Patches(const PatchesVertex& p) : p_(p), w_(p.window), element_(size_of(p.out.type)) {}

  /// Channels of a position are contiguous; `out` has all features.
  void along_channels() const {
    const size_t tap_bytes = p_.channels * element_;
    const bool joins = w_.dilation_across == 1 && p_.x.row_stride == p_.channels;
    for (uint32_t i = 0; i < p_.out.rows; ++i) {
      const uint32_t position = p_.position + i, image = position / w_.out_positions();
      const uint32_t out_row = position / w_.out_width % w_.out_height, out_col = position % w_.out_width;
      const Span cols = w_.tap_cols(out_col);
      std::byte* to = address_of(p_.out, i, 0);
      for (uint32_t tap_row = 0; tap_row < w_.kernel_height; ++tap_row, to += w_.kernel_width * tap_bytes) {
        const int64_t row = w_.row(out_row, tap_row);
        if (!w_.has_row(row) || cols.size() == 0) {
          std::memset(to, 0, w_.kernel_width * tap_bytes);
          continue;
        }
        std::memset(to, 0, cols.begin * tap_bytes);
        std::memset(to + cols.end * tap_bytes, 0, (w_.kernel_width - cols.end) * tap_bytes);
        const int64_t first = (int64_t{image} * w_.height + row) * w_.width;
        for (uint32_t tap = cols.begin; tap < cols.end; tap += joins ? cols.size() : 1)
          std::memcpy(to + tap * tap_bytes, address_of(p_.x, first + w_.col(out_col, tap), 0),
                      (joins ? cols.size() : 1) * tap_bytes);
      }
    }
  }

  /// Positions of a row of an image are contiguous; `out` has whole rows.
  void along_rows() const {
    const uint32_t lines = p_.out.rows / w_.out_width, first_line = p_.position / w_.out_width;
    for (uint32_t f = 0; f < p_.out.cols; ++f) {
      const uint32_t tap = (p_.feature + f) / p_.channels, channel = (p_.feature + f) % p_.channels;
      const Span cols = w_.out_cols(tap % w_.kernel_width);
      for (uint32_t i = 0; i < lines; ++i) {
        const uint32_t line = first_line + i;
        const int64_t row = w_.row(line % w_.out_height, tap / w_.kernel_width);
        copy_row(address_of(p_.out, int64_t{i} * w_.out_width, f), cols, w_.has_row(row), [&] {
          const int64_t first = (int64_t{line / w_.out_height} * w_.height + row) * w_.width;
          return address_of(p_.x, first + w_.col(cols.begin, tap % w_.kernel_width), channel);
        });
      }
    }
  }

 private:
  template <class From>
  void copy_row(std::byte* to, Span cols, bool is_inside, const From& from) const {
    if (!is_inside || cols.size() == 0) {
      std::memset(to, 0, w_.out_width * element_);
      return;
    }
    std::memset(to, 0, cols.begin * element_);
    std::memset(to + cols.end * element_, 0, (w_.out_width - cols.end) * element_);
    if (w_.stride_across == 1)
      std::memcpy(to + cols.begin * element_, from(), cols.size() * element_);
    else
      copy_strided(element_, from(), w_.stride_across, to + cols.begin * element_, 1, cols.size());
  }

  const PatchesVertex& p_;
  const Window& w_;
  size_t element_;
};

}  // namespace

void patches_simd(const program::Vertex& v) {
  if (v.fields[patches_field::out].empty()) return;
  const PatchesVertex p(v);
  const bool all_features = p.feature == 0 && p.out.cols == p.window.taps() * p.channels;
  const bool whole_rows = p.position % p.window.out_width == 0 && p.out.rows % p.window.out_width == 0;
  if (p.x.col_stride == 1 && p.out.col_stride == 1 && all_features)
    Patches(p).along_channels();
  else if (p.x.row_stride == 1 && p.out.row_stride == 1 && whole_rows)
    Patches(p).along_rows();
  else
    patches_reference(v);
}

void fold_simd(const program::Vertex& v) {
  if (!v.fields[patches_field::out].empty()) HWY_DYNAMIC_DISPATCH(run_fold)(v);
}

}  // namespace tessera::kernels
#endif
