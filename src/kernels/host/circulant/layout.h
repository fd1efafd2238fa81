// The transform into which a circulant matrix is embedded, and the layout of its scratch.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/common/lane_columns.h"
#include "kernels/host/circulant/codelet.h"

namespace tessera::kernels {

/// The cyclic convolution, of a power of two elements, whose results include the results of a matrix.
struct CirculantEmbedding {
  CirculantShape shape;
  uint32_t size;  ///< a power of two
  int64_t begin;  ///< first difference i − j
  int64_t end;    ///< end of the differences

  explicit CirculantEmbedding(const CirculantShape& of) : shape(of) {
    size = std::bit_ceil(std::max(2U, of.in + of.out - 1));
    begin = 1 - int64_t{of.in};
    end = of.out;
    if (!of.toeplitz && std::has_single_bit(of.taps) && of.taps >= 2 && of.taps <= size) {
      size = of.taps;
      begin = 0;
      end = of.taps;
    }
  }

  /// Position in the convolution's kernel of a difference, and the position in c of its element.
  size_t position(int64_t difference) const { return static_cast<size_t>(difference) & (size - 1); }
  size_t tap(int64_t difference) const {
    if (shape.toeplitz) return static_cast<size_t>(difference + shape.in - 1);
    return static_cast<size_t>(difference < 0 ? difference + shape.taps : difference);
  }
};

/// Maximum number of samples, left over from a batch's tiles, that take less time one by one.
inline constexpr uint32_t kFewCirculantSamples = 5;

/// Whether single samples are processed on vectors along their features: samples of four columns or more.
constexpr bool circulant_has_lines(uint32_t size) { return size >= 4 * kColumnLanes; }

/// Offsets in floats.
struct CirculantScratch {
  size_t spectrum = 0;  ///< spectrum of c
  size_t totals;        ///< the spectrum of dc
  size_t line;          ///< a single sample of x
  size_t dy_line;       ///< a single sample of dy
  size_t columns;       ///< columns of y, or of dy and dx
  size_t x;             ///< columns of x
  size_t total;

  CirculantScratch(uint32_t size, bool gradients) {
    const size_t points = std::max<size_t>(size, kColumnLanes);
    const size_t more = gradients ? points : 0;
    totals = points;
    line = totals + more;
    dy_line = line + points;
    columns = dy_line + more;
    x = columns + floats_of_columns(points);
    total = x + (gradients ? floats_of_columns(points) : 0);
  }
};

/// Shapes from the fields of both codelets' vertices.
inline uint32_t features_of(const program::FieldView& field, bool transposed) {
  return transposed ? field.rows : field.cols;
}
inline CirculantShape shape_of(const program::Vertex& v, const program::FieldView& in,
                               const program::FieldView& out, const program::FieldView& c) {
  const bool transposed = v.params[circulant_param::transposed] != 0;
  return {features_of(in, transposed), features_of(out, transposed), c.cols,
          v.params[circulant_param::toeplitz] != 0};
}

}  // namespace tessera::kernels
