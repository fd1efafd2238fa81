// Windows for samples of products whose X has the elements under a window.
#pragma once

#include <array>
#include <bit>

#include "kernels/common/window.h"
#include "kernels/samples/sample.h"

namespace tessera::kernels {

/// A window of 3 × 2 taps over images of 6 × 11, whose size it keeps, or with strides.
inline Window sample_window(bool strided) {
  Window w{.height = 6, .width = 11, .kernel_height = 3, .kernel_width = 2, .top = 1, .left = 0};
  if (strided) w.stride_down = 2, w.stride_across = 2, w.left = 1;
  w.out_height = strided ? 3 : 6;
  w.out_width = strided ? 6 : 11;
  return w;
}

/// A window of 3 × 3 taps over images of 13 × 12, with zeros above and below: 13 × 10 positions.
inline Window sample_window_of_tiles() {
  return {.height = 13,
          .width = 12,
          .out_height = 13,
          .out_width = 10,
          .kernel_height = 3,
          .kernel_width = 3,
          .top = 1,
          .left = 0};
}

/// A window of 3 × 3 taps that keeps the size of images whose rows are half a vector.
inline Window sample_window_of_vectors() {
  return {.height = 8,
          .width = 8,
          .out_height = 8,
          .out_width = 8,
          .kernel_height = 3,
          .kernel_width = 3,
          .top = 1,
          .left = 1};
}

/// Number of images of a sample, of which X has columns from the 7th position on; and no window, for a
/// matrix.
inline constexpr uint32_t kSampleImages = 3, kFirstPosition = 7;

inline void add_window(Sample& s, bool sees, const Window& window) {
  const auto words = std::bit_cast<std::array<uint32_t, kWindowWords>>(window);
  s.values(Type::u32, 1, sees ? kWindowWords : 0, [&](uint64_t i) { return words[i]; }).packed();
}
inline void add_window(Sample& s, bool sees, bool strided) { add_window(s, sees, sample_window(strided)); }

}  // namespace tessera::kernels
