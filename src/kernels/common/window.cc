#include "kernels/common/window.h"

namespace tessera::kernels {

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
