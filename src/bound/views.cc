#include "bound/views.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <limits>

namespace tessera {
namespace {

/// Elements between neighbours in a dimension of `count` elements; a dimension of one element may have any
/// stride.
uint64_t stride_of(int64_t stride, uint32_t count) {
  if (count == 1) return std::numeric_limits<int64_t>::max();
  return stride < 0 ? -static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
}

}  // namespace

void require_array(const void* data, std::string_view name) {
  if (data == nullptr) throw UsageError(fmt::format("{} is null; it must be an array", name));
}

void require_array(const float* data, std::string_view name, uint32_t rows, uint32_t cols) {
  if (data == nullptr && rows != 0 && cols != 0)
    throw UsageError(fmt::format("{} is null; it must be an array of {} × {} floats", name, rows, cols));
}

MatrixView<float> view_of(const float* data, std::string_view name, uint32_t rows, uint32_t cols,
                          Layout layout, int64_t leading) {
  const int64_t inner = layout == Layout::row_major ? cols : rows;
  if (leading == 0) leading = inner;
  if (leading < inner)
    throw UsageError(fmt::format("the leading dimension of {} is {}; {} × {} needs at least {}", name,
                                 leading, rows, cols, inner));
  require_array(data, name, rows, cols);
  float* array = const_cast<float*>(data);
  return layout == Layout::row_major ? MatrixView<float>{array, leading, 1}
                                     : MatrixView<float>{array, 1, leading};
}

void require_matrix(const MatrixView<float>& matrix, std::string_view name, uint32_t rows, uint32_t cols) {
  if (rows == 0 || cols == 0) return;
  require_array(matrix.data, name, rows, cols);
  const uint64_t down = stride_of(matrix.row_stride, rows), right = stride_of(matrix.col_stride, cols);
  const bool by_rows = down >= right;
  const uint64_t inner = by_rows ? right : down, outer = by_rows ? down : right;
  if (inner == 0 || outer / inner < (by_rows ? cols : rows))
    throw UsageError(fmt::format("elements of {} coincide: {} × {} with strides of {} and {}", name, rows,
                                 cols, matrix.row_stride, matrix.col_stride));
}

}  // namespace tessera
