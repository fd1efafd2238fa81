// Dense matrices in panels of rows, one vector high, as hosts read them.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera::sparse {

/// W (m × k) in panels: element (16p + r, c) is element (p, 16c + r) of the variable. Rows beyond m are
/// zeros, and products and elementwise updates with a gradient in panels keep them so.
struct PanelLayout {
  static constexpr uint32_t kRows = 16;

  uint32_t m = 0;
  uint32_t k = 0;

  uint32_t rows() const { return m / kRows + (m % kRows != 0 ? 1 : 0); }  ///< rows of the variable
  uint32_t cols() const { return k * kRows; }
  uint64_t elements() const { return uint64_t{rows()} * k * kRows; }
  bool operator==(const PanelLayout&) const = default;

  /// Converts a matrix to panels, contiguous row by row, and back. T is float, or the bits of a 16-bit type;
  /// convert(element) is what is stored.
  template <class T, class To, class Convert>
  void store(MatrixView<const T> w, To* panels, const Convert& convert) const {
    for (uint32_t row = 0; row < m; row += kRows) {
      const uint32_t rows = std::min(kRows, m - row);
      for (uint32_t c = 0; c < k; ++c, panels += kRows) {
        for (uint32_t r = 0; r < rows; ++r) panels[r] = convert(w(row + r, c));
        std::fill(panels + rows, panels + kRows, To{});
      }
    }
  }
  template <class T, class To, class Convert>
  void load(const T* panels, MatrixView<To> w, const Convert& convert) const {
    for (uint32_t row = 0; row < m; row += kRows) {
      const uint32_t rows = std::min(kRows, m - row);
      for (uint32_t c = 0; c < k; ++c, panels += kRows)
        for (uint32_t r = 0; r < rows; ++r) w(row + r, c) = convert(panels[r]);
    }
  }
  template <class T>
  void store(MatrixView<const T> w, T* panels) const {
    store(w, panels, [](T element) { return element; });
  }
  template <class T>
  void load(const T* panels, MatrixView<T> w) const {
    load(panels, w, [](T element) { return element; });
  }

  /// Position of element (row, col) of W.
  size_t at(uint32_t row, uint32_t col) const {
    return size_t{row / kRows} * cols() + size_t{col} * kRows + row % kRows;
  }
};

}  // namespace tessera::sparse
