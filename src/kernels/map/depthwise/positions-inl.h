// Channels whose results lie like the elements that their taps see, but for a shift.
#if defined(TESSERA_DEPTHWISE_POSITIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DEPTHWISE_POSITIONS_INL_H_
#undef TESSERA_DEPTHWISE_POSITIONS_INL_H_
#else
#define TESSERA_DEPTHWISE_POSITIONS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/common/splits.h"
#include "kernels/common/thread_buffer.h"
#include "kernels/map/depthwise/bounds-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

/// All positions of a channel are contiguous. A tap sees every stride-th row and column of an image: a plane
/// in which positions lie as in the results, so that a vector of results sees a vector of neighbours
/// whatever rows it spans. Taps beyond the image are masked. With strides of 1 the channel itself is the
/// plane; else its planes are copied.
template <class T>
class AlongPositions {
 public:
  explicit AlongPositions(const DepthwiseVertex& d)
      : d_(d), w_(d.window), taps_(w_.taps()), images_(d.out.rows / w_.out_positions()) {
    in_place_ = w_.keeps_size() && std::is_same_v<T, float> && HWY_MEM_OPS_MIGHT_FAULT == 0;
    group_ = std::clamp(kGroupPositions / w_.out_positions(), 1U, images_);
    while (images_ % group_ != 0) --group_;
    vectors_ = (group_ * w_.out_positions() + kVectorLanes - 1) / kVectorLanes;
    // Whole vectors before each band.
    band_ = in_place_ || w_.positions() <= kBandFloats ? w_.out_height : std::min(kBandRows, w_.out_height);
    find_taps();
    const size_t mask_floats = round_up(taps_ * vectors_ * kMaskBytes, 64) / sizeof(float);
    channels_ = in_place_ ? 1 : std::clamp(kBatchFloats / channel_floats(), 1U, kMostChannels);
    float* const buffer = thread_buffer(mask_floats + (in_place_ ? 0 : size_t{channels_} * channel_floats()));
    masks_ = reinterpret_cast<uint8_t*>(buffer);
    planes_ = buffer + mask_floats;
    for (uint32_t tap = 0; tap < taps_; ++tap)
      mask_tap(w_, tap, 0, group_ * w_.out_positions(), kVectorLanes,
               masks_ + size_t{tap} * vectors_ * kMaskBytes);
  }

  void run() {
    for (uint32_t image = 0; image < images_; image += group_)
      for (uint32_t first = 0; first < d_.out.cols; first += channels_)
        for (uint32_t row = 0; row < w_.out_height; row += band_)
          channels(image, {first, std::min(first + channels_, d_.out.cols)},
                   {row, std::min(row + band_, w_.out_height)});
  }

 private:
  static constexpr uint32_t kVectorLanes = hn::MaxLanes(Floats());
  static constexpr size_t kMaskBytes = mask_bytes(kVectorLanes);
  // Small images are taken together; and channels, so that planes are not read right after they are written.
  static constexpr uint32_t kGroupPositions = 512, kBatchFloats = 4096, kMostChannels = 8;
  // Larger images are copied by bands of rows, which the L1 cache holds.
  static constexpr uint32_t kBandFloats = 4096, kBandRows = 16;

  const T* x_at(uint32_t image, uint32_t c) const {
    return reinterpret_cast<const T*>(
        address_of(d_.x, int64_t{image} * w_.positions(), int64_t{d_.channel} + c));
  }
  uint32_t plane_floats() const {
    const uint32_t rows = band_ == w_.out_height ? group_ * band_ : band_ + rows_around_;
    return rows * w_.out_width + 2 * margin_;
  }
  uint32_t channel_floats() const { return w_.stride_down * w_.stride_across * plane_floats(); }
  float* planes_of(uint32_t channel) const { return planes_ + size_t{channel} * channel_floats(); }

  struct Step {
    int32_t whole;
    uint32_t phase;
  };
  static Step step_of(int64_t places, uint32_t stride) {
    const int64_t phase = (places % stride + stride) % stride;
    return {static_cast<int32_t>((places - phase) / stride), static_cast<uint32_t>(phase)};
  }

  void find_taps() {
    Step down[kMostTaps], across[kMostTaps];
    uint32_t most = 0;
    above_ = step_of(w_.row(0, 0), w_.stride_down).whole;
    rows_around_ = step_of(w_.row(0, w_.kernel_height - 1), w_.stride_down).whole - above_;
    for (uint32_t tap = 0; tap < taps_; ++tap) {
      down[tap] = step_of(w_.row(0, tap / w_.kernel_width), w_.stride_down);
      across[tap] = step_of(w_.col(0, tap % w_.kernel_width), w_.stride_across);
      shift_[tap] = int64_t{down[tap].whole} * w_.out_width + across[tap].whole;
      most = std::max(most, static_cast<uint32_t>(std::abs(shift_[tap])));
    }
    margin_ = round_up(most + kMaxLanes, kMaxLanes);
    for (uint32_t tap = 0; tap < taps_ && !in_place_; ++tap)
      shift_[tap] += int64_t{down[tap].phase * w_.stride_across + across[tap].phase} * plane_floats();
  }

  /// Results of a group of images in a band of rows.
  void channels(uint32_t image, Span of, Span band) const {
    if (in_place_) {
      for (uint32_t c = of.begin; c < of.end; ++c)
        channel(image, c, band, reinterpret_cast<const float*>(x_at(image, c)));
      return;
    }
    const uint32_t first = band_ == w_.out_height ? 0 : plane_row(int64_t{band.begin} + above_);
    const uint32_t end =
        band_ == w_.out_height ? plane_rows() : plane_row(int64_t{band.end} + above_ + rows_around_);
    for (uint32_t c = of.begin; c < of.end; ++c)
      for (uint32_t i = 0; i < group_; ++i)
        copy_image(image + i, i, c, {first, end}, planes_of(c - of.begin));
    for (uint32_t c = of.begin; c < of.end; ++c)
      channel(image, c, band, planes_of(c - of.begin) + margin_ - size_t{first} * w_.out_width);
  }

  uint32_t plane_rows() const { return (w_.height + w_.stride_down - 1) / w_.stride_down; }
  uint32_t plane_row(int64_t row) const {
    return static_cast<uint32_t>(std::clamp<int64_t>(row, 0, plane_rows()));
  }

  void copy_image(uint32_t image, uint32_t place, uint32_t c, Span rows, float* planes) const {
    const T* const from = x_at(image, c);
    float* const to = planes + margin_ + size_t{place} * w_.out_positions();
    const uint32_t end = std::min(rows.end * w_.stride_down, w_.height);
    for (uint32_t row = rows.begin * w_.stride_down; row < end; ++row)
      copy_row(from + size_t{row} * w_.width,
               to + size_t{row % w_.stride_down} * w_.stride_across * plane_floats() +
                   size_t{row / w_.stride_down - rows.begin} * w_.out_width);
  }

  // A row in the phases of its columns. Whole vectors are stored: the next row overwrites the excess.
  HWY_INLINE void copy_row(const T* from, float* to) const {
    const Floats d;
    const size_t lanes = hn::Lanes(d), width = w_.width, step = w_.stride_across;
    if (step == 1) {
      for (size_t i = 0; i < width; i += lanes) hn::StoreU(load_some(from + i, width - i), d, to + i);
      return;
    }
#if TESSERA_HAS_VECTORS
    if (step == 2) {
      float* const odd = to + plane_floats();
      for (size_t i = 0; i < width; i += 2 * lanes) {
        const Vector lower = load_some(from + i, width - i);
        const Vector upper = i + lanes < width ? load_some(from + i + lanes, width - i - lanes) : hn::Zero(d);
        hn::StoreU(hn::ConcatEven(d, upper, lower), d, to + i / 2);
        hn::StoreU(hn::ConcatOdd(d, upper, lower), d, odd + i / 2);
      }
      return;
    }
#endif
    for (size_t i = 0; i < width; ++i) to[i % step * plane_floats() + i / step] = base::to_float(from[i]);
  }

  void channel(uint32_t image, uint32_t c, Span band, const float* from) const {
    const Floats d;
    const int64_t of_channel = int64_t{d_.channel} + c;
    float weight[kMostTaps];
    for (uint32_t tap = 0; tap < taps_; ++tap)
      weight[tap] = base::to_float(*reinterpret_cast<const T*>(address_of(d_.w, of_channel, tap)));
    const Vector bias = hn::Set(d, d_.bias_at(d_.channel + c));
    T* const to = reinterpret_cast<T*>(address_of(d_.out, int64_t{image} * w_.out_positions(), c));
    const bool is_all = band_ == w_.out_height;
    const size_t count = is_all ? size_t{group_} * w_.out_positions() : size_t{band.end} * w_.out_width;
    const size_t lanes = hn::Lanes(d);
    size_t i = size_t{band.begin} * w_.out_width;
    for (; i + 4 * lanes <= count; i += 4 * lanes) vectors<4>(i, 4 * lanes, from, weight, bias, to);
    const size_t rest = count - i;
    if (rest > 3 * lanes)
      vectors<4>(i, rest, from, weight, bias, to);
    else if (rest > 2 * lanes)
      vectors<3>(i, rest, from, weight, bias, to);
    else if (rest > lanes)
      vectors<2>(i, rest, from, weight, bias, to);
    else if (rest > 0)
      vectors<1>(i, rest, from, weight, bias, to);
  }

  template <size_t kCount>
  HWY_INLINE void vectors(size_t at, size_t count, const float* from, const float* weight, Vector bias,
                          T* to) const {
    const Floats d;
    const size_t lanes = hn::Lanes(d), mask_step = size_t{vectors_} * kMaskBytes;
    const uint32_t taps = taps_;
    const Bounds bounds(d_);
    const uint8_t* mask = masks_ + at / lanes * kMaskBytes;
    from += at;
    Vector sum[kCount];
#pragma GCC unroll 4
    for (size_t v = 0; v < kCount; ++v) sum[v] = bias;
    for (uint32_t tap = 0; tap < taps; ++tap, mask += mask_step) {
      const Vector w = hn::Set(d, weight[tap]);
      const float* const x = from + shift_[tap];
#pragma GCC unroll 4
      for (size_t v = 0; v < kCount; ++v) {
        const auto inside = hn::LoadMaskBits(d, mask + v * kMaskBytes);
        sum[v] =
            hn::IfThenElse(inside, hn::MulAdd(w, hn::MaskedLoad(inside, d, x + v * lanes), sum[v]), sum[v]);
      }
    }
#pragma GCC unroll 4
    for (size_t v = 0; v < kCount; ++v)
      store_some(bounds.clip(sum[v]), to + at + v * lanes, count - v * lanes);
  }

  const DepthwiseVertex& d_;
  const Window& w_;
  const uint32_t taps_;
  uint32_t images_, group_ = 1, channels_ = 1;
  uint32_t vectors_ = 0;                 // of a group's positions
  uint32_t band_ = 0;                    // rows of results at a time
  int32_t above_ = 0, rows_around_ = 0;  // of a plane, seen by a row and after it
  uint32_t margin_ = 0;                  // before and after a plane
  bool in_place_ = false;
  uint8_t* masks_ = nullptr;  // of each tap, by vector
  float* planes_ = nullptr;   // of each channel of a batch, by phases of rows and columns
  int64_t shift_[kMostTaps];
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
