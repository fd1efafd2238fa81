// Writes sums that lie row by row to a column-major Y.
#if defined(TESSERA_KERNELS_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_COLUMNS_INL_H_
#undef TESSERA_KERNELS_COLUMNS_INL_H_
#else
#define TESSERA_KERNELS_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/epilogue-inl.h"
#include "kernels/common/panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Whether columns of Y may be written with non-temporal stores: they begin at cache lines, and Y is not read.
inline bool streams_columns(const MatrixView<float>& y, const Epilogue& epilogue) {
  return y.row_stride == 1 && epilogue.beta == 0.0F && reinterpret_cast<uintptr_t>(y.data) % 64 == 0 &&
         y.col_stride % 16 == 0;
}

// Finishes columns of a Y that is read, adding beta · Y, in pieces that stay in the L1 cache.
inline void finish_read_columns(const Epilogue& e, const MatrixView<float>& y, uint32_t row, uint32_t rows,
                                int64_t col, uint32_t cols, const float* sums, size_t step) {
  constexpr uint32_t kRows = 32;
  constexpr auto kCols = static_cast<uint32_t>(kLanes);
  HWY_ALIGN float columns[kCols * kRows];
  for (uint32_t r = 0; r < rows; r += kRows) {
    const uint32_t count = std::min(kRows, rows - r);
    const float* bias = bias_of(e, row + r);
    for (uint32_t c = 0; c < cols; c += kCols) {
      const uint32_t width = std::min(kCols, cols - c);
      transpose(sums + r * step + c, step, count, width, columns, kRows);
      finish_lines(e, {columns, kRows, y.pointer_to(row + r, col + c), y.col_stride, width, count, bias,
                       /*are_rows=*/false});
    }
  }
}

// Rows [row, row + rows) of Y and columns [col, col + cols), from sums whose rows are `step` apart and which
// it changes. With `stream`, which requires streams_columns(), by non-temporal stores.
inline void finish_columns(const Epilogue& e, const MatrixView<float>& y, uint32_t row, uint32_t rows,
                           int64_t col, uint32_t cols, float* sums, size_t step, bool stream) {
  if (e.beta != 0.0F) return finish_read_columns(e, y, row, rows, col, cols, sums, step);
  if (!is_plain(e))
    finish_lines(e, {sums, step, sums, static_cast<int64_t>(step), rows, cols, bias_of(e, row),
                     /*are_rows=*/true});
  transpose_into_columns(sums, step, rows, cols, row, y.pointer_to(row, col), y.col_stride, stream);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
