// Matrices in panels of rows, one vector high, as hosts read dense weights.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/codelet.h"

namespace tessera::ops {

/// W (m × k) in panels: element (16p + r, c) is element (p, 16c + r) of the variable. Rows beyond m are
/// zeros, and products and elementwise updates with a gradient in panels keep them so.
struct PanelLayout {
  static constexpr uint32_t kRows = kernels::kPanelRows;

  uint32_t m = 0;
  uint32_t k = 0;

  uint32_t rows() const { return m / kRows + (m % kRows != 0 ? 1 : 0); }  ///< rows of the variable
  uint32_t cols() const { return k * kRows; }
  uint64_t elements() const { return uint64_t{rows()} * cols(); }
  bool operator==(const PanelLayout&) const = default;

  /// Converts a matrix to panels, contiguous row by row, and back. T is float, or the bits of a 16-bit type.
  template <class T>
  void store(MatrixView<const T> w, T* panels) const {
    for (uint32_t row = 0; row < rows() * kRows; ++row)
      for (uint32_t c = 0; c < k; ++c) panels[at(row, c)] = row < m ? w(row, c) : T{};
  }
  template <class T>
  void load(const T* panels, MatrixView<T> w) const {
    for (uint32_t row = 0; row < m; ++row)
      for (uint32_t c = 0; c < k; ++c) w(row, c) = panels[at(row, c)];
  }

  /// Position of element (row, col) of W.
  size_t at(uint32_t row, uint32_t col) const {
    return size_t{row / kRows} * cols() + size_t{col} * kRows + row % kRows;
  }
};

}  // namespace tessera::ops
