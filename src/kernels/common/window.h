// Windows that slide over images, as in convolutions.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "program/codelet.h"

namespace tessera::kernels {

/// Positions [begin, end) along one dimension.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;

  uint32_t size() const { return end - begin; }
};

/// One dimension of a window; by default, a dimension of a single position.
struct WindowAxis {
  uint32_t size = 1;
  uint32_t out = 1;  ///< number of positions of the window
  uint32_t kernel = 1;
  uint32_t stride = 1;
  uint32_t before = 0;  ///< zeros before the image's first position
  uint32_t dilation = 1;
};

/// A window over images of height × width positions, with zeros around them. Its taps are numbered row by
/// row, and so are positions, image by image.
struct Window {
  uint32_t height = 1;
  uint32_t width = 1;
  uint32_t out_height = 1;  ///< number of positions of the window
  uint32_t out_width = 1;
  uint32_t kernel_height = 1;
  uint32_t kernel_width = 1;
  uint32_t stride_down = 1;
  uint32_t stride_across = 1;
  uint32_t top = 0;  ///< rows of zeros before the image's first row
  uint32_t left = 0;
  uint32_t dilation_down = 1;
  uint32_t dilation_across = 1;

  bool operator==(const Window&) const = default;

  static Window of(const WindowAxis& down, const WindowAxis& across) {
    return {.height = down.size,
            .width = across.size,
            .out_height = down.out,
            .out_width = across.out,
            .kernel_height = down.kernel,
            .kernel_width = across.kernel,
            .stride_down = down.stride,
            .stride_across = across.stride,
            .top = down.before,
            .left = across.before,
            .dilation_down = down.dilation,
            .dilation_across = across.dilation};
  }
  WindowAxis down() const { return {height, out_height, kernel_height, stride_down, top, dilation_down}; }
  WindowAxis across() const { return {width, out_width, kernel_width, stride_across, left, dilation_across}; }

  uint32_t taps() const { return kernel_height * kernel_width; }
  uint32_t positions() const { return height * width; }
  uint32_t out_positions() const { return out_height * out_width; }

  /// Whether the elements under a tap lie as the positions do, but for a shift.
  bool keeps_size() const {
    return stride_down == 1 && stride_across == 1 && height == out_height && width == out_width;
  }
  /// The shift of a tap in a window that keeps the size.
  int64_t shift_of(uint32_t tap) const {
    return row(0, tap / kernel_width) * width + col(0, tap % kernel_width);
  }

  /// The window of the adjoint of a convolution, over the convolution's results, with its images as results;
  /// none: it has strides, or more zeros around the images than it covers.
  std::optional<Window> adjoint() const {
    const int64_t above = int64_t{kernel_height - 1} * dilation_down - top;
    const int64_t before = int64_t{kernel_width - 1} * dilation_across - left;
    if (stride_down != 1 || stride_across != 1 || above < 0 || before < 0) return {};
    Window window = *this;
    window.height = out_height, window.width = out_width;
    window.out_height = height, window.out_width = width;
    window.top = static_cast<uint32_t>(above), window.left = static_cast<uint32_t>(before);
    return window;
  }

  /// The row of the image under a row of taps; negative or beyond the last row where there are zeros.
  int64_t row(uint32_t out_row, uint32_t tap_row) const {
    return int64_t{out_row} * stride_down + int64_t{tap_row} * dilation_down - top;
  }
  int64_t col(uint32_t out_col, uint32_t tap_col) const {
    return int64_t{out_col} * stride_across + int64_t{tap_col} * dilation_across - left;
  }
  bool has_row(int64_t row) const { return row >= 0 && row < height; }
  bool has_col(int64_t col) const { return col >= 0 && col < width; }

  /// Columns of positions in which a column of taps is within the image.
  Span out_cols(uint32_t tap_col) const {
    return inside(int64_t{left} - int64_t{tap_col} * dilation_across, stride_across, width, out_width);
  }
  /// Columns of taps that are within the image in a column of positions.
  Span tap_cols(uint32_t out_col) const {
    return inside(int64_t{left} - int64_t{out_col} * stride_across, dilation_across, width, kernel_width);
  }

  /// Calls visit(position, place, count) for the positions in [begin, end), counted over all images, in which
  /// a tap is within the image, in runs of `count` that follow one another in a row. The tap sees the images'
  /// position `place` at the first of them, and a position stride_across further at each next one.
  template <class Visit>
  void each_inside(uint32_t tap, uint32_t begin, uint32_t end, const Visit& visit) const {
    const uint32_t tap_row = tap / kernel_width, tap_col = tap % kernel_width;
    const Span cols = out_cols(tap_col);
    uint32_t column = begin % out_width, in_image = begin / out_width % out_height;
    int64_t image = begin / out_positions();
    for (uint32_t position = begin, next; position < end; position = next) {
      next = std::min(end, position + out_width - column);
      const int64_t under = row(in_image, tap_row);
      const uint32_t first = std::max(column, cols.begin);
      const uint32_t last = std::min(column + next - position, cols.end);
      if (has_row(under) && first < last) {
        const int64_t place = (image * height + under) * width + col(first, tap_col);
        visit(position + first - column, static_cast<size_t>(place), last - first);
      }
      column = 0;
      if (++in_image == out_height) in_image = 0, ++image;
    }
  }

  /// The row of positions in which a row of the image is under a row of taps; negative: none.
  int64_t out_row(uint32_t row, uint32_t tap_row) const {
    return quotient(int64_t{row} + top - int64_t{tap_row} * dilation_down, stride_down, out_height);
  }
  int64_t out_col(uint32_t col, uint32_t tap_col) const {
    return quotient(int64_t{col} + left - int64_t{tap_col} * dilation_across, stride_across, out_width);
  }

 private:
  /// Numbers i < count with 0 ≤ i · step − before < size.
  static Span inside(int64_t before, int64_t step, int64_t size, int64_t count) {
    const auto first_from = [&](int64_t place) {
      return static_cast<uint32_t>(std::clamp<int64_t>(place <= 0 ? 0 : (place + step - 1) / step, 0, count));
    };
    const uint32_t begin = first_from(before);
    return {begin, std::max(begin, first_from(before + size))};
  }
  static int64_t quotient(int64_t place, int64_t step, int64_t count) {
    return place < 0 || place % step != 0 || place / step >= count ? -1 : place / step;
  }
};

/// Number of words of a window as a field.
inline constexpr uint32_t kWindowWords = sizeof(Window) / sizeof(uint32_t);
static_assert(kWindowWords == 12);

inline Window window_of(const program::FieldView& field) {
  Window window;
  std::memcpy(&window, field.data, sizeof window);
  return window;
}

/// A product's X as the elements under a window in images: row t · channels + c is channel c at tap t, and
/// columns are positions of the window, from `first` on. The images are channels × positions.
struct Seen {
  Window window = {};
  uint32_t channels = 0;   ///< 0: X is a matrix
  uint32_t positions = 0;  ///< total over all images
  uint32_t first = 0;

  explicit operator bool() const { return channels > 0; }
  uint32_t rows() const { return channels * window.taps(); }
};

/// The images of a vertex's X; none, if its window is empty.
inline Seen seen_of(const program::FieldView& images, const program::FieldView& window, int64_t first) {
  if (window.empty()) return {};
  return {window_of(window), images.rows, images.cols, static_cast<uint32_t>(first)};
}

/// Bytes of a vector's mask.
constexpr size_t mask_bytes(size_t lanes) { return (lanes + 7) / 8; }

/// Masks of `count` positions from `first` on, in vectors of `lanes`: a bit is set where the tap is within
/// the image.
void mask_tap(const Window& window, uint32_t tap, uint32_t first, uint32_t count, uint32_t lanes,
              uint8_t* masks);

/// Columns [0, cols) of X, row by row.
std::vector<float> matrix_of(const MatrixView<const float>& images, const Seen& seen, uint32_t cols);

}  // namespace tessera::kernels
