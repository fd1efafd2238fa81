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

inline const float* bias_of(const Epilogue& e, uint32_t row) {
  return e.bias == nullptr ? nullptr : e.bias + row;
}

// Writes a part of Y from its sums by rows, row r at sums + r * step.
inline void finish_by_rows(const BlockSlice& slice, const Piece& p, const float* sums, size_t step) {
  for (uint32_t r = 0; r < p.rows; ++r) {
    float* y = slice.y.pointer_to(p.row + r, p.col);
    finish_line(slice.epilogue, sums + r * step, p.cols, bias_of(slice.epilogue, p.row + r), 0, y);
  }
}

// Writes a part of Y from its sums by columns, column c at sums + c * step.
inline void finish_by_columns(const BlockSlice& slice, const Piece& p, const float* sums, size_t step) {
  for (uint32_t c = 0; c < p.cols; ++c) {
    float* y = slice.y.pointer_to(p.row, p.col + c);
    finish_line(slice.epilogue, sums + c * step, p.rows, bias_of(slice.epilogue, p.row), 1, y);
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
