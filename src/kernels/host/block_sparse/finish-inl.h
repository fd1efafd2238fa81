// Writes finished micro-tiles to Y.
#if defined(TESSERA_BLOCK_SPARSE_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_FINISH_INL_H_
#undef TESSERA_BLOCK_SPARSE_FINISH_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_FINISH_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/common/epilogue-inl.h"
#include "kernels/common/panels-inl.h"
#include "kernels/host/block_sparse/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// A part of Y.
struct Piece {
  uint32_t row;
  uint32_t col;
  uint32_t rows;
  uint32_t cols;
};

// Writes a part of Y from its sums by rows, row r at sums + r * step.
inline void finish_by_rows(const BlockSlice& slice, const Piece& p, const float* sums, size_t step) {
  finish_lines(slice.epilogue, {sums, step, slice.y.pointer_to(p.row, p.col), slice.y.row_stride, p.rows,
                                p.cols, bias_of(slice.epilogue, p.row), /*are_rows=*/true});
}

// Writes a part of Y from its sums by columns, column c at sums + c * step.
inline void finish_by_columns(const BlockSlice& slice, const Piece& p, const float* sums, size_t step) {
  finish_lines(slice.epilogue, {sums, step, slice.y.pointer_to(p.row, p.col), slice.y.col_stride, p.cols,
                                p.rows, bias_of(slice.epilogue, p.row), /*are_rows=*/false});
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
