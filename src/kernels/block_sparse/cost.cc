#include "kernels/block_sparse/cost.h"

#include <algorithm>

namespace tessera::kernels {

program::PhaseTimes block_cost(const BlockShare& share, const machine::HostFigures& figures) {
  const BlockWeight& w = share.weight;
  const double blocks = w.row_begin[share.block_row_end] - w.row_begin[share.block_row_begin];
  const double cols = share.col_end - share.col_begin;
  const double values = blocks * w.block_size * w.block_size;
  const double hz = figures.ghz * 1e9;
  program::PhaseTimes seconds;
  if (share.cut.kernel == BlockCut::Kernel::wide) {
    if (share.cut.pack_x)
      seconds[program::Phase::pack] = 8.0 * w.cols * cols / (figures.l3_bytes_per_cycle * hz);
    const double lanes = figures.flops_per_cycle / 4;
    const double padded = std::max(cols, lanes);
    seconds[program::Phase::compute] = 2 * values * padded / (figures.flops_per_cycle * hz);
  } else {
    seconds[program::Phase::compute] =
        std::max(values * static_cast<double>(size_of(w.type)) / (figures.l3_bytes_per_cycle * hz),
                 2 * values * cols * 1.5 / (figures.flops_per_cycle * hz));
  }
  return seconds;
}

std::vector<BlockCut> block_candidates(const BlockProblem& p, const machine::HostFigures& figures) {
  const auto threads = static_cast<uint16_t>(p.threads);
  const uint32_t lanes = std::max(4U, static_cast<uint32_t>(figures.flops_per_cycle / 4));
  std::vector<BlockCut> cuts;
  for (const bool by_rows : {true, false})
    for (const BlockCut::Kernel kernel : {BlockCut::Kernel::wide, BlockCut::Kernel::narrow}) {
      if (kernel == BlockCut::Kernel::narrow && p.n > 32) continue;
      BlockCut cut;
      cut.kernel = kernel;
      (by_rows ? cut.row_parts : cut.col_parts) = threads;
      cut.tile_rows = p.block_size == 4 ? 4 : 8;
      cut.tile_vectors = p.block_size == 4 ? 4 : 3;
      cut.panel_cols = cut.tile_vectors * lanes;
      cuts.push_back(cut);
    }
  return cuts;
}

}  // namespace tessera::kernels
