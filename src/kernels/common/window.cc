#include "kernels/common/window.h"

namespace tessera::kernels {
namespace {

void set_bits(uint32_t begin, uint32_t end, uint32_t lanes, uint8_t* masks) {
  const size_t bytes = mask_bytes(lanes);
  for (uint32_t v = begin / lanes; v * lanes < end; ++v) {
    const uint32_t from = std::max(begin, v * lanes) - v * lanes, to = std::min(end - v * lanes, lanes);
    const uint32_t bits = ((uint32_t{1} << to) - 1) & ~((uint32_t{1} << from) - 1);
    for (size_t b = 0; b < bytes; ++b) masks[v * bytes + b] |= static_cast<uint8_t>(bits >> (8 * b));
  }
}

}  // namespace

void mask_tap(const Window& w, uint32_t tap, uint32_t first, uint32_t count, uint32_t lanes, uint8_t* masks) {
  std::fill_n(masks, (count + lanes - 1) / lanes * mask_bytes(lanes), uint8_t{0});
  const Span inside = w.out_cols(tap % w.kernel_width);
  for (uint32_t at = 0, step = 0; at < count; at += step) {
    const uint32_t row = (first + at) / w.out_width, col = (first + at) % w.out_width;
    step = std::min(w.out_width - col, count - at);
    const uint32_t begin = std::max(col, inside.begin), end = std::min(col + step, inside.end);
    if (begin < end && w.has_row(w.row(row % w.out_height, tap / w.kernel_width)))
      set_bits(at + begin - col, at + end - col, lanes, masks);
  }
}

std::vector<float> matrix_of(const MatrixView<const float>& images, const Seen& seen, uint32_t cols) {
  const Window& w = seen.window;
  std::vector<float> all(size_t{seen.rows()} * cols);
  for (uint32_t row = 0; row < seen.rows(); ++row)
    for (uint32_t col = 0; col < cols; ++col) {
      const uint32_t position = seen.first + col, tap = row / seen.channels;
      const int64_t y = w.row(position / w.out_width % w.out_height, tap / w.kernel_width);
      const int64_t x = w.col(position % w.out_width, tap % w.kernel_width);
      if (w.has_row(y) && w.has_col(x))
        all[size_t{row} * cols + col] =
            images(row % seen.channels, (int64_t{position / w.out_positions()} * w.height + y) * w.width + x);
    }
  return all;
}

}  // namespace tessera::kernels
