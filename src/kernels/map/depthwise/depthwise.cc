#include <algorithm>
#include <type_traits>

#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/common/splits.h"
#include "kernels/common/thread_buffer.h"
#include "kernels/map/depthwise/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/depthwise/depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/map/depthwise/bounds-inl.h"
#include "kernels/map/depthwise/positions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

/// Channels of a position are contiguous.
template <class T>
class AlongChannels {
 public:
  explicit AlongChannels(const DepthwiseVertex& d)
      : d_(d),
        w_(d.window),
        step_(round_up(d.out.cols, kMaxLanes)),
        weights_(thread_buffer(step_ * (w_.taps() + 1))) {
    for (uint32_t c = 0; c < d.out.cols; ++c) {
      for (uint32_t tap = 0; tap < w_.taps(); ++tap)
        weights_[tap * step_ + c] = d.weight_at(d.channel + c, tap);
      weights_[w_.taps() * step_ + c] = d.bias_at(d.channel + c);
    }
    for (uint32_t line = 0; line <= w_.taps(); ++line)
      std::fill(weights_ + line * step_ + d.out.cols, weights_ + (line + 1) * step_, 0.0F);
  }

  void run() {
    const Span inside = whole_cols();
    for (uint32_t i = 0, count = 1; i < d_.out.rows; i += count) {
      find_taps(d_.position + i);
      const uint32_t col = (d_.position + i) % w_.out_width;
      const bool is_whole = col >= inside.begin && col + kPositions <= inside.end;
      count = is_whole && i + kPositions <= d_.out.rows ? kPositions : 1;
      T* const to = reinterpret_cast<T*>(address_of(d_.out, i, 0));
      count == kPositions ? positions<kPositions>(to) : positions<1>(to);
    }
  }

 private:
  void find_taps(uint32_t position) {
    seen_ = 0;
    const uint32_t out_row = position / w_.out_width % w_.out_height, out_col = position % w_.out_width;
    const Span cols = w_.tap_cols(out_col);
    for (uint32_t tap_row = 0; tap_row < w_.kernel_height; ++tap_row) {
      const int64_t row = w_.row(out_row, tap_row);
      if (!w_.has_row(row)) continue;
      const int64_t first = (int64_t{position / w_.out_positions()} * w_.height + row) * w_.width;
      for (uint32_t tap_col = cols.begin; tap_col < cols.end; ++tap_col, ++seen_) {
        x_[seen_] =
            reinterpret_cast<const T*>(address_of(d_.x, first + w_.col(out_col, tap_col), d_.channel));
        weight_[seen_] = weights_ + (tap_row * w_.kernel_width + tap_col) * step_;
      }
    }
  }

  /// Columns of results that see all columns of the window.
  Span whole_cols() const {
    Span inside{0, w_.out_width};
    for (uint32_t tap_col = 0; tap_col < w_.kernel_width; ++tap_col) {
      const Span of_tap = w_.out_cols(tap_col);
      inside = {std::max(inside.begin, of_tap.begin), std::min(inside.end, of_tap.end)};
    }
    return inside;
  }

  /// Neighbours in a row, which share the weights.
  template <uint32_t kCount>
  HWY_INLINE void positions(T* to) const {
    // Enough sums at a time to cover the latency of multiply-adds.
    constexpr size_t kVectors = kCount == 1 ? 4 : 2;
    const size_t lanes = hn::Lanes(Floats()), cols = d_.out.cols;
    size_t c = 0;
    for (; c + kVectors * lanes <= cols; c += kVectors * lanes) vectors<kCount, kVectors>(c, lanes, to);
    for (; c < cols; c += lanes) vectors<kCount, 1>(c, std::min(lanes, cols - c), to);
  }

  template <uint32_t kCount, size_t kVectors>
  HWY_INLINE void vectors(size_t c, size_t of_each, T* to) const {
    const Floats d;
    const size_t lanes = hn::Lanes(d);
    const int64_t right = w_.stride_across * d_.x.row_stride;
    const Bounds bounds(d_);
    Vector sum[kCount][kVectors];
#pragma GCC unroll 4
    for (uint32_t p = 0; p < kCount; ++p)
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v)
        sum[p][v] = hn::LoadU(d, weights_ + w_.taps() * step_ + c + v * lanes);
    for (uint32_t tap = 0; tap < seen_; ++tap) {
      const T* const x = x_[tap] + c;
      Vector weight[kVectors];
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v) weight[v] = hn::LoadU(d, weight_[tap] + c + v * lanes);
#pragma GCC unroll 4
      for (uint32_t p = 0; p < kCount; ++p)
#pragma GCC unroll 4
        for (size_t v = 0; v < kVectors; ++v)
          sum[p][v] = hn::MulAdd(weight[v], load_some(x + p * right + v * lanes, of_each), sum[p][v]);
    }
#pragma GCC unroll 4
    for (uint32_t p = 0; p < kCount; ++p)
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v)
        store_some(bounds.clip(sum[p][v]), to + p * d_.out.row_stride + c + v * lanes, of_each);
  }

  static constexpr uint32_t kPositions = 4;
  const DepthwiseVertex& d_;
  const Window& w_;
  size_t step_;
  float* weights_;  // of each tap by channel, and the bias
  uint32_t seen_ = 0;
  const T* x_[kMostTaps];
  const float* weight_[kMostTaps];
};

/// Positions of a row of an image are contiguous. A channel of an image is copied with the zeros around it,
/// divided by the phase of its columns modulo the stride: then the columns under a tap are neighbours.
template <class T>
class AlongRows {
 public:
  explicit AlongRows(const DepthwiseVertex& d) : d_(d), w_(d.window), stride_(w_.stride_across) {
    rows_overlap_ = w_.stride_down == 1 && w_.dilation_down == 1;
    rows_ = (w_.out_height - 1) * w_.stride_down + (w_.kernel_height - 1) * w_.dilation_down + 1;
    const uint32_t cols = (w_.out_width - 1) * stride_ + (w_.kernel_width - 1) * w_.dilation_across + 1;
    pitch_ = (cols + stride_ - 1) / stride_ + kMaxLanes;
    plane_ = thread_buffer(size_t{rows_} * stride_ * pitch_);
    std::fill_n(plane_, size_t{rows_} * stride_ * pitch_, 0.0F);  // the same around all channels
    for (uint32_t tap = 0; tap < w_.taps(); ++tap) {
      const uint32_t col = tap % w_.kernel_width * w_.dilation_across;
      place_[tap] = (size_t{tap} / w_.kernel_width * w_.dilation_down * stride_ + col % stride_) * pitch_ +
                    col / stride_;
    }
  }

  void run() {
    const uint32_t images = d_.out.rows / w_.out_positions();
    for (uint32_t c = 0; c < d_.out.cols; ++c) {
      for (uint32_t tap = 0; tap < w_.taps(); ++tap) weight_[tap] = d_.weight_at(d_.channel + c, tap);
      for (uint32_t image = 0; image < images; ++image) {
        for (uint32_t row = 0; row < rows_; ++row) copy_row(image, row, c);
        image_of(image, c);
      }
    }
  }

 private:
  static constexpr uint32_t kRows = 4;

  void copy_row(uint32_t image, uint32_t row, uint32_t c) {
    float* to = plane_ + size_t{row} * stride_ * pitch_;
    const int64_t of_image = int64_t{row} - w_.top;
    if (!w_.has_row(of_image)) return;
    const T* from = reinterpret_cast<const T*>(
        address_of(d_.x, (int64_t{image} * w_.height + of_image) * w_.width, d_.channel + c));
    // Columns that no tap sees have no place.
    const uint32_t places = (pitch_ - kMaxLanes) * stride_;
    const uint32_t cols = places > w_.left ? std::min(w_.width, places - w_.left) : 0;
    if (stride_ == 1)
      convert_elements(cols, to + w_.left, from);
    else
      copy_in_phases(from, cols, to);
  }

  HWY_INLINE void copy_in_phases(const T* from, uint32_t cols, float* to) const {
    const auto copy = [&](uint32_t i) HWY_ATTR {
      const uint32_t col = i + w_.left;
      to[col % stride_ * pitch_ + col / stride_] = base::to_float(from[i]);
    };
    uint32_t i = 0;
    if constexpr (std::is_same_v<T, float>) {
      if (stride_ == 2 && w_.left % 2 == 1 && cols > 0) copy(i++);
      if (stride_ == 2) {
        copy_pairs(Floats(), from, cols, to, i);
        copy_pairs(hn::CappedTag<float, 4>(), from, cols, to, i);
      }
    }
    for (; i < cols; ++i) copy(i);
  }

  // Column i begins a pair.
  template <class D>
  HWY_INLINE void copy_pairs(D d, const float* from, uint32_t cols, float* to, uint32_t& i) const {
    const auto pairs = static_cast<uint32_t>(2 * hn::Lanes(d));
    for (; i + pairs <= cols; i += pairs) {
      hn::Vec<D> even, odd;
      hn::LoadInterleaved2(d, from + i, even, odd);
      float* place = to + (i + w_.left) / 2;
      hn::StoreU(even, d, place);
      hn::StoreU(odd, d, place + pitch_);
    }
  }

  void image_of(uint32_t image, uint32_t c) const {
    const auto lanes = static_cast<uint32_t>(hn::Lanes(Floats()));
    const Vector bias = hn::Set(Floats(), d_.bias_at(d_.channel + c));
    T* to = reinterpret_cast<T*>(address_of(d_.out, int64_t{image} * w_.out_positions(), c));
    for (uint32_t row = 0; row < w_.out_height; row += kRows)
      for (uint32_t col = 0; col < w_.out_width; col += lanes) {
        // The last vector overlaps the one before it, if there is one.
        const bool is_whole = w_.out_width >= lanes;
        const uint32_t at = is_whole ? std::min(col, w_.out_width - lanes) : col;
        const uint32_t count = is_whole ? lanes : w_.out_width - col;
        const uint32_t rows = std::min(kRows, w_.out_height - row);
        if (rows == kRows)
          block<kRows>(row, at, count, bias, to);
        else
          for (uint32_t r = 0; r < rows; ++r) block<1>(row + r, at, count, bias, to);
      }
  }

  template <uint32_t kCount>
  HWY_INLINE void block(uint32_t row, uint32_t col, uint32_t count, Vector bias, T* to) const {
    const Floats d;
    const Bounds bounds(d_);
    const size_t step = size_t{w_.stride_down} * stride_ * pitch_;
    const float* from = plane_ + row * step + col;
    Vector sum[kCount];
    for (uint32_t r = 0; r < kCount; ++r) sum[r] = bias;
    if (kCount > 1 && rows_overlap_ && w_.kernel_height == 3)
      add_sliding<kCount, 3>(from, sum);
    else if (kCount > 1 && rows_overlap_ && w_.kernel_height == 5)
      add_sliding<kCount, 5>(from, sum);
    else
      for (uint32_t tap = 0; tap < w_.taps(); ++tap) {
        const Vector weight = hn::Set(d, weight_[tap]);
        for (uint32_t r = 0; r < kCount; ++r)
          sum[r] = hn::MulAdd(weight, hn::LoadU(d, from + place_[tap] + r * step), sum[r]);
      }
    for (uint32_t r = 0; r < kCount; ++r)
      store_some(bounds.clip(sum[r]), to + size_t{row + r} * w_.out_width + col, count);
  }

  // Rows that several results see are loaded once.
  template <uint32_t kCount, uint32_t kHeight>
  HWY_INLINE void add_sliding(const float* from, Vector* sum) const {
    const Floats d;
    for (uint32_t tap_col = 0; tap_col < w_.kernel_width; ++tap_col) {
      Vector weight[kHeight];
      for (uint32_t t = 0; t < kHeight; ++t) weight[t] = hn::Set(d, weight_[t * w_.kernel_width + tap_col]);
      const float* x = from + place_[tap_col];
#pragma GCC unroll 8
      for (uint32_t row = 0; row < kCount + kHeight - 1; ++row, x += size_t{stride_} * pitch_) {
        const Vector line = hn::LoadU(d, x);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < kCount; ++r)
          if (r <= row && row < r + kHeight) sum[r] = hn::MulAdd(weight[row - r], line, sum[r]);
      }
    }
  }

  const DepthwiseVertex& d_;
  const Window& w_;
  uint32_t stride_, rows_, pitch_;
  bool rows_overlap_;
  float* plane_;
  size_t place_[kMostTaps];
  float weight_[kMostTaps];
};

void run_depthwise(const program::Vertex& v) {
  const DepthwiseVertex d(v);
  const bool whole_images = d.position == 0 && d.out.rows % d.window.out_positions() == 0;
  if (d.window.taps() > kMostTaps) return depthwise_reference(v);
  with_float_type(d.out.type, [&]<class T>(T) HWY_ATTR {
    if (d.x.col_stride == 1 && d.out.col_stride == 1)
      AlongChannels<T>(d).run();
    else if (d.x.row_stride == 1 && d.out.row_stride == 1 && whole_images)
      sees_by_shifts(d.window) ? AlongPositions<T>(d).run() : AlongRows<T>(d).run();
    else
      depthwise_reference(v);
  });
}

}  // namespace
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(run_depthwise);

}  // namespace

void depthwise_simd(const program::Vertex& v) {
  if (!v.fields[depthwise_field::out].empty()) HWY_DYNAMIC_DISPATCH(run_depthwise)(v);
}

}  // namespace tessera::kernels
#endif
