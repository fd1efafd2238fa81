#include "kernels/map/pool/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/common/thread_buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/pool/pool.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/some-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using program::FieldView;

/// What becomes of the elements of a window.
struct Maximum {
  static HWY_INLINE Vector begin() { return hn::Set(Floats(), -std::numeric_limits<float>::infinity()); }
  static HWY_INLINE Vector add(Vector most, Vector x, float) {
    return hn::IfThenElse(hn::Or(hn::Gt(x, most), hn::IsNaN(x)), x, most);
  }
  static HWY_INLINE float add(float most, float x, float) { return x > most || x != x ? x : most; }
  static float weight(const WindowRow&, uint32_t) { return 1; }
  static bool is_uniform(const WindowRow&) { return true; }
  static HWY_INLINE float of_lanes(Vector most) {
    HWY_ALIGN float lanes[hn::MaxLanes(Floats())];
    hn::Store(most, Floats(), lanes);
    float of = lanes[0];
    for (size_t i = 1; i < hn::Lanes(Floats()); ++i) of = add(of, lanes[i], 1);
    return of;
  }
};
struct WeightedSum {
  static HWY_INLINE Vector begin() { return hn::Zero(Floats()); }
  static HWY_INLINE Vector add(Vector sum, Vector x, float weight) {
    return hn::MulAdd(x, hn::Set(Floats(), weight), sum);
  }
  static HWY_INLINE float add(float sum, float x, float weight) { return sum + x * weight; }
  static float weight(const WindowRow& row, uint32_t i) { return row.weights[i]; }
  static bool is_uniform(const WindowRow& row) {
    return std::all_of(row.weights, row.weights + row.count, [&](float w) { return w == row.weights[0]; });
  }
  static HWY_INLINE float of_lanes(Vector sum) { return hn::GetLane(hn::SumOfLanes(Floats(), sum)); }
};

// The channels of a pixel are contiguous: each has a lane.

/// Some vectors of channels of one window. `corner` is its first pixel.
template <class Kind, size_t vectors, class T>
HWY_INLINE void of_window(const Windowed& f, const WindowRow& i, const WindowRow& j, const T* corner, T* y,
                          size_t count) {
  const size_t lanes = hn::Lanes(Floats());
  const int64_t right = f.x.row_stride * f.across.step, below = f.x.row_stride * f.across.size * f.down.step;
  Vector of[vectors];
  for (Vector& each : of) each = Kind::begin();
  for (uint32_t a = 0; a < i.count; ++a) {
    const T* x = corner + a * below;
    for (uint32_t b = 0; b < j.count; ++b, x += right) {
      const float weight = Kind::weight(i, a) * Kind::weight(j, b);
      if (weight == 0) continue;
      for (size_t v = 0; v < vectors; ++v)
        of[v] = Kind::add(of[v], load_some(x + v * lanes, count - v * lanes), weight);
    }
  }
  for (size_t v = 0; v < vectors; ++v) store_some(of[v], y + v * lanes, count - v * lanes);
}

template <class Kind, class T>
void of_pixels(const Windowed& f) {
  constexpr size_t kVectors = 4;
  const size_t lanes = hn::Lanes(Floats()), channels = f.y.cols;
  for (uint32_t r = 0; r < f.rows(); ++r) {
    const WindowRow& i = f.window(r);
    for (uint32_t p = 0; p < f.across.outputs(); ++p) {
      const WindowRow& j = f.across.of[p];
      const uint64_t pixel = f.image(r) + uint64_t{i.first} * f.across.size + j.first;
      const T* const x = reinterpret_cast<const T*>(f.x.data) + static_cast<int64_t>(pixel) * f.x.row_stride;
      T* const y = reinterpret_cast<T*>(address_of(f.y, int64_t{r} * f.across.outputs() + p, 0));
      size_t c = 0;
      for (; c + kVectors * lanes <= channels; c += kVectors * lanes)
        of_window<Kind, kVectors>(f, i, j, x + c, y + c, kVectors * lanes);
      for (; c < channels; c += lanes)
        of_window<Kind, 1>(f, i, j, x + c, y + c, std::min(lanes, channels - c));
    }
  }
}

/// Adds the gradient of one window, in lanes of at most `count` channels. `x` and `dx` are the first pixels.
HWY_INLINE void add_gradient(const MaxPoolGradient& f, const WindowRow& i, const WindowRow& j, const float* x,
                             const float* dy, float* dx, size_t count) {
  const Floats d;
  const hn::RebindToSigned<Floats> integers;
  const Vector gradient = load_some(dy, count);
  const auto pixel = [&](uint32_t a, uint32_t b) {
    return (int64_t{a} * f.down.step) * f.across.size + int64_t{b} * f.across.step;
  };
  Vector most = hn::Zero(d);
  auto first = hn::Set(integers, -1);
  int32_t tap = 0;
  for (uint32_t a = 0; a < i.count; ++a)
    for (uint32_t b = 0; b < j.count; ++b, ++tap) {
      const Vector here = load_some(x + pixel(a, b) * f.x.row_stride, count);
      const auto none = hn::RebindMask(d, hn::Lt(first, hn::Zero(integers)));
      const auto more = hn::Or(hn::Or(hn::Gt(here, most), hn::IsNaN(here)), none);
      most = hn::IfThenElse(more, here, most);
      first = hn::IfThenElse(hn::RebindMask(integers, more), hn::Set(integers, tap), first);
    }
  tap = 0;
  for (uint32_t a = 0; a < i.count; ++a)
    for (uint32_t b = 0; b < j.count; ++b, ++tap) {
      float* const at = dx + pixel(a, b) * f.dx.row_stride;
      const auto is_first = hn::RebindMask(d, hn::Eq(first, hn::Set(integers, tap)));
      store_some(hn::Add(load_some(at, count), hn::IfThenElseZero(is_first, gradient)), at, count);
    }
}

/// Adds the gradients of one image's windows, row by row: the cache holds the pixels that windows share.
void add_gradients(const MaxPoolGradient& f, uint32_t image) {
  const size_t lanes = hn::Lanes(Floats()), channels = f.dx.cols;
  const int64_t first = int64_t{image} * f.down.size * f.across.size;
  const auto at = [](const FieldView& field, int64_t row) {
    return reinterpret_cast<float*>(address_of(field, row, 0));
  };
  int64_t cleared = 0;
  const auto clear_until = [&](int64_t end) {
    for (; cleared < end; ++cleared) std::fill_n(at(f.dx, first + cleared), channels, 0.0F);
  };
  int64_t output = int64_t{image} * f.down.outputs() * f.across.outputs();
  for (const WindowRow& i : f.down.of) {
    if (i.count > 0) clear_until((i.first + (i.count - 1) * int64_t{f.down.step} + 1) * f.across.size);
    for (const WindowRow& j : f.across.of) {
      const int64_t corner = first + int64_t{i.first} * f.across.size + j.first;
      const float *x = at(f.x, corner), *dy = at(f.dy, output++);
      float* const dx = at(f.dx, corner);
      for (size_t c = 0; c < channels; c += lanes)
        add_gradient(f, i, j, x + c, dy + c, dx + c, std::min(lanes, channels - c));
    }
  }
  clear_until(int64_t{f.down.size} * f.across.size);
}

// Otherwise rows of pixels of one channel are copied, and combined from the top to the bottom, then from left
// to right.

void load_row(const FieldView& field, int64_t pixel, uint32_t channel, size_t count, float* to) {
  if (field.row_stride != 1) {
    for (size_t k = 0; k < count; ++k) to[k] = f32_at(field, pixel + static_cast<int64_t>(k), channel);
    return;
  }
  with_float_type(field.type, [&]<class T>(T) HWY_ATTR {
    convert_elements(count, to, reinterpret_cast<const T*>(address_of(field, pixel, channel)));
  });
}

void store_row(const FieldView& field, int64_t pixel, uint32_t channel, size_t count, const float* from) {
  if (field.row_stride != 1) {
    for (size_t k = 0; k < count; ++k) set_number(field, pixel + static_cast<int64_t>(k), channel, from[k]);
    return;
  }
  with_float_type(field.type, [&]<class T>(T) HWY_ATTR {
    convert_elements(count, reinterpret_cast<T*>(address_of(field, pixel, channel)), from);
  });
}

/// Whether each window is some whole rows of an image, with the same weight for all elements.
template <class Kind>
bool sees_whole_rows(const Windowed& f) {
  const WindowRow& j = f.across.of[0];
  if (f.x.row_stride != 1 || f.across.outputs() != 1 || j.first != 0 || j.count != f.across.size ||
      f.down.step != 1 || (f.across.step != 1 && j.count > 1))
    return false;
  return Kind::is_uniform(j) && std::ranges::all_of(f.down.of, Kind::is_uniform);
}

/// Then its elements are contiguous.
template <class Kind, class T>
void of_whole_rows(const Windowed& f) {
  const Floats d;
  const size_t lanes = hn::Lanes(d), width = f.across.size;
  for (uint32_t c = 0; c < f.y.cols; ++c)
    for (uint32_t r = 0; r < f.rows(); ++r) {
      const WindowRow& i = f.window(r);
      const T* const x = reinterpret_cast<const T*>(
          address_of(f.x, static_cast<int64_t>(f.image(r) + uint64_t{i.first} * width), c));
      const float weight = i.count == 0 ? 1 : Kind::weight(i, 0) * Kind::weight(f.across.of[0], 0);
      const size_t count = i.count * width;
      Vector of = Kind::begin();
      size_t at = 0;
      for (; at + lanes <= count; at += lanes) of = Kind::add(of, load_f32(d, x + at), weight);
      if (at < count) {
        const auto inside = hn::FirstN(d, count - at);
        of = hn::IfThenElse(inside, Kind::add(of, load_first(d, x + at, count - at), weight), of);
      }
      set_number(f.y, r, c, Kind::of_lanes(of));
    }
}

/// The only element of a window along a row that counts; one past the row: none does.
struct OnlyElement {
  uint32_t at = 0;
  float weight = 0;
};

/// The only elements of all windows, as in gradients of means; none: some windows have several.
template <class Kind>
std::vector<OnlyElement> only_elements(const WindowRows& across) {
  std::vector<OnlyElement> elements;
  for (const WindowRow& j : across.of) {
    uint32_t count = 0;
    elements.push_back({across.size});
    for (uint32_t b = 0; b < j.count; ++b)
      if (const float weight = Kind::weight(j, b); weight != 0) {
        elements.back() = {j.first + b * across.step, weight};
        ++count;
      }
    if (count > 1) return {};
  }
  return elements;
}

template <class Kind>
void of_channels(const Windowed& f) {
  if (sees_whole_rows<Kind>(f))
    return with_float_type(f.x.type, [&]<class T>(T) HWY_ATTR { of_whole_rows<Kind, T>(f); });
  const size_t width = f.across.size, outputs = f.across.outputs();
  const std::vector<OnlyElement> only = only_elements<Kind>(f.across);
  const float begin = hn::GetLane(Kind::begin());
  float* const row = thread_buffer(2 * width + 1 + outputs);
  float *const combined = row + width, *const y = combined + width + 1;
  for (uint32_t c = 0; c < f.y.cols; ++c)
    for (uint32_t r = 0; r < f.rows(); ++r) {
      const WindowRow& i = f.window(r);
      std::fill_n(combined, width + 1, begin);
      for (uint32_t a = 0; a < i.count; ++a) {
        const float weight = Kind::weight(i, a);
        if (weight == 0) continue;
        const uint64_t pixel = f.image(r) + (i.first + uint64_t{a} * f.down.step) * width;
        load_row(f.x, static_cast<int64_t>(pixel), c, width, row);
        map_elements([&](auto, auto so_far, auto x) HWY_ATTR { return Kind::add(so_far, x, weight); }, width,
                     combined, static_cast<const float*>(combined), static_cast<const float*>(row));
      }
      for (size_t p = 0; p < only.size(); ++p) y[p] = Kind::add(begin, combined[only[p].at], only[p].weight);
      for (size_t p = only.size(); p < outputs; ++p) {
        const WindowRow& j = f.across.of[p];
        float of = begin;
        for (uint32_t b = 0; i.count > 0 && b < j.count; ++b)
          if (const float weight = Kind::weight(j, b); weight != 0)
            of = Kind::add(of, combined[j.first + size_t{b} * f.across.step], weight);
        y[p] = of;
      }
      store_row(f.y, static_cast<int64_t>(r * outputs), c, outputs, y);
    }
}

/// The gradient of one channel of one image.
void gradient_of_plane(const MaxPoolGradient& f, const float* x, const float* dy, float* dx) {
  const int64_t width = f.across.size;
  for (const WindowRow& i : f.down.of)
    for (const WindowRow& j : f.across.of) {
      const float gradient = *dy++;
      int64_t first = -1;
      for (uint32_t a = 0; a < i.count; ++a)
        for (uint32_t b = 0; b < j.count; ++b) {
          const int64_t at =
              (i.first + int64_t{a} * f.down.step) * width + j.first + int64_t{b} * f.across.step;
          if (first < 0 || x[at] > x[first] || std::isnan(x[at])) first = at;
        }
      if (first >= 0) dx[first] += gradient;
    }
}

void gradient_of_channels(const MaxPoolGradient& f) {
  const size_t pixels = size_t{f.down.size} * f.across.size,
               outputs = size_t{f.down.outputs()} * f.across.outputs();
  float* const x = thread_buffer(2 * pixels + outputs);
  float *const dx = x + pixels, *const dy = dx + pixels;
  for (uint32_t c = 0; c < f.dx.cols; ++c)
    for (size_t image = 0; image < f.images(); ++image) {
      load_row(f.x, static_cast<int64_t>(image * pixels), c, pixels, x);
      load_row(f.dy, static_cast<int64_t>(image * outputs), c, outputs, dy);
      std::fill_n(dx, pixels, 0.0F);
      gradient_of_plane(f, x, dy, dx);
      store_row(f.dx, static_cast<int64_t>(image * pixels), c, pixels, dx);
    }
}

}  // namespace

void maxima_of_pixels(const Windowed& f) {
  with_float_type(f.x.type, [&]<class T>(T) HWY_ATTR { of_pixels<Maximum, T>(f); });
}
void sums_of_pixels(const Windowed& f) {
  with_float_type(f.x.type, [&]<class T>(T) HWY_ATTR { of_pixels<WeightedSum, T>(f); });
}
void maxima_of_channels(const Windowed& f) { of_channels<Maximum>(f); }
void sums_of_channels(const Windowed& f) { of_channels<WeightedSum>(f); }

void max_pool_gradient(const MaxPoolGradient& f, bool by_pixel) {
  if (!by_pixel) return gradient_of_channels(f);
  for (uint32_t image = 0; image < f.images(); ++image) add_gradients(f, image);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(maxima_of_pixels);
HWY_EXPORT(sums_of_pixels);
HWY_EXPORT(maxima_of_channels);
HWY_EXPORT(sums_of_channels);
HWY_EXPORT(max_pool_gradient);

}  // namespace

void apply_windowed(const Windowed& of) {
  if (of.x.empty() || of.y.empty()) return;
  const bool by_pixel = has_contiguous_rows(of.x) && has_contiguous_rows(of.y);
  if (of.weighted)
    by_pixel ? HWY_DYNAMIC_DISPATCH(sums_of_pixels)(of) : HWY_DYNAMIC_DISPATCH(sums_of_channels)(of);
  else
    by_pixel ? HWY_DYNAMIC_DISPATCH(maxima_of_pixels)(of) : HWY_DYNAMIC_DISPATCH(maxima_of_channels)(of);
}

void apply_max_pool_gradient(const MaxPoolGradient& of) {
  if (of.x.empty()) return;
  const bool by_pixel = of.x.type == Type::f32 && has_contiguous_rows(of.x) && has_contiguous_rows(of.dy) &&
                        has_contiguous_rows(of.dx);
  HWY_DYNAMIC_DISPATCH(max_pool_gradient)(of, by_pixel);
}

}  // namespace tessera::kernels
#endif
