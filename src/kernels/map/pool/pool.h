// SIMD forms of pooling over windows of images. FP32 arithmetic on f32, f16 and bf16, rounded once.
#pragma once

#include <cstdint>
#include <vector>

#include "program/codelet.h"

namespace tessera::kernels {

/// The window of an output along one dimension: `count` elements from `first` on, WindowRows::step apart.
struct WindowRow {
  uint32_t first = 0;
  uint32_t count = 0;
  const float* weights = nullptr;  ///< for a weighted sum
};
struct WindowRows {
  std::vector<WindowRow> of;
  std::vector<float> weights = {};
  uint32_t size = 0;  ///< size of the dimension
  uint32_t step = 1;
  uint32_t outputs() const { return static_cast<uint32_t>(of.size()); }
};

/// Images as pixels × channels: x, and y from row `row` of all images on.
struct Windowed {
  program::FieldView x, y;
  WindowRows down, across;
  uint32_t row = 0;
  bool weighted = false;

  /// Number of rows of images in y; and for one of them, the window of its row, and the first pixel of its
  /// image in x.
  uint32_t rows() const { return across.outputs() == 0 ? 0 : y.rows / across.outputs(); }
  const WindowRow& window(uint32_t r) const { return down.of[(row + r) % down.outputs()]; }
  uint64_t image(uint32_t r) const { return uint64_t{(row + r) / down.outputs()} * down.size * across.size; }
};

struct MaxPoolGradient {
  program::FieldView dy, x, dx;
  WindowRows down, across;

  uint32_t images() const { return down.size * across.size == 0 ? 0 : x.rows / (down.size * across.size); }
};

void apply_windowed(const Windowed& of);
void apply_max_pool_gradient(const MaxPoolGradient& of);

}  // namespace tessera::kernels
