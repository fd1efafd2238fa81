// Cost of a slice of a block-sparse product on a host, and candidate schedules.
#pragma once

#include <vector>

#include "kernels/host/block_sparse/block_sparse.h"
#include "machine/model/figures.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Seconds of a slice by phase (rearrange, compute), from its sizes, the exact pattern (or the capacity, if
/// the pattern is not known yet) and the host's figures. Reads no values, no X and no Y; only their strides.
program::PhaseTimes block_cost(const BlockSlice& slice, const machine::HostFigures& figures);

/// The properties that determine candidate schedules.
struct BlockProblem {
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  uint32_t block_size = 8;
  uint64_t non_zeros = 0;
  Type type = Type::f32;
  uint32_t threads = 1;
  bool x_column_major = false;
  bool y_column_major = false;
  bool sees_images = false;  ///< X has the elements under a window
  bool can_shift = false;    ///< images that X sees may be read where they are
  bool is_bf16 = false;      ///< X and Y are BF16, and the weight suits_bf16()
};

/// Schedules that may be the fastest for a product.
std::vector<BlockSchedule> block_candidates(const BlockProblem& problem, const machine::HostFigures& figures);

}  // namespace tessera::kernels
