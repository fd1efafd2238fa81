// SDDMM: dW = alpha · (dY·Xᵀ at the pattern) + beta · dW, FP32, in the weight's packed
// order. Places without a stored element are set to 0.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>

#include "kernels/common/window.h"
#include "kernels/host/block_sparse/block_sparse.h"
#include "kernels/host/element_sparse/element_sparse.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// How an SDDMM at blocks is partitioned over cores, and how a core processes its slice: the knobs of a plan.
struct BlockSddmmSchedule {
  uint16_t row_parts = 1;     ///< slices along the rows of dY
  uint16_t col_parts = 1;     ///< slices along the columns, whose results are added, if row_parts is 1
  uint32_t group_rows = 512;  ///< rows of X that stay in the L2 cache while dY streams
  uint32_t panel_cols = 512;  ///< columns of dY and X in one pass

  bool operator==(const BlockSddmmSchedule&) const = default;
};

/// How an SDDMM at single elements is partitioned over cores, and how a core processes its slice: the knobs
/// of a plan.
struct ElementSddmmSchedule {
  uint16_t row_parts = 1;     ///< slices along the rows of dY, in whole chunks
  uint16_t col_parts = 1;     ///< slices along the columns, whose results are added, if row_parts is 1
  uint16_t panel_cols = 64;   ///< columns of dY and X in one pass over dW, at most kMaxSddmmPanel
  uint16_t group_panels = 2;  ///< panels of dY that stay in the L2 cache together

  bool operator==(const ElementSddmmSchedule&) const = default;
};

/// Largest panel_cols at single elements, and at blocks with a window: larger values count as this one.
inline constexpr uint32_t kMaxSddmmPanel = 128;

/// The dense operands of a slice: dY m × n and X k × n, or whole images in which X has the elements under a
/// window, from a position on. With beta = 0, dW is not read.
struct SddmmOperands {
  uint32_t n = 0;
  MatrixView<const float> dy;
  MatrixView<const float> x;
  Seen seen = {};       ///< none: x is X
  float* dw = nullptr;  ///< the whole of dW: block i, or row group i, at its position in packed order
  float alpha = 1.0F;
  float beta = 0.0F;
  float* scratch = nullptr;              ///< cache-line aligned
  program::PhaseClock* clock = nullptr;  ///< may be null
  program::Helpers* helpers = nullptr;   ///< may be null
};

/// One core's slice: some block rows. The weight's values are not read.
struct BlockSddmmSlice {
  BlockWeight weight;
  uint32_t block_row_begin = 0;
  uint32_t block_row_end = 0;
  SddmmOperands operands;
  BlockSddmmSchedule schedule;
};

/// One core's slice: some chunks. The weight's values are not read.
struct ElementSddmmSlice {
  ElementWeight weight;
  uint32_t chunk_begin = 0;
  uint32_t chunk_end = 0;
  uint64_t end_place = 0;  ///< elements of dW from the slice's last to this position are cleared
  SddmmOperands operands;
  ElementSddmmSchedule schedule;
};

/// Computes a slice. Its bits depend only on the slice, the schedule and the instruction set.
void block_sddmm(const BlockSddmmSlice& slice);
void element_sddmm(const ElementSddmmSlice& slice);

/// The references of block_sddmm() and element_sddmm() in plain loops.
void block_sddmm_reference(const BlockSddmmSlice& slice);
void element_sddmm_reference(const ElementSddmmSlice& slice);

/// Which operands may be column-major, and thus need scratch for a row-major copy, like what a window sees.
struct SddmmLayouts {
  bool x_by_columns = true;
  bool dy_by_columns = true;
  bool sees = false;
};

/// Floats of scratch for a slice of `block_rows` block rows.
size_t block_sddmm_scratch(const BlockSddmmSchedule& schedule, const BlockWeight& weight, uint32_t block_rows,
                           uint32_t n, const SddmmLayouts& layouts);

/// Floats of scratch for a slice of any chunks of the weight.
size_t element_sddmm_scratch(const ElementSddmmSchedule& schedule, const ElementWeight& weight, uint32_t n,
                             const Seen& seen = {});

}  // namespace tessera::kernels
