#include "kernels/element_sparse/cost.h"

#include <algorithm>

namespace tessera::kernels {

program::PhaseTimes element_cost(const ElementShare& share, const machine::HostFigures& figures) {
  const ElementWeight& w = share.weight;
  double elements = 0;
  const uint64_t first = w.blocks[uint64_t{share.chunk_begin} * w.k_blocks()].index;
  const uint64_t last = w.blocks[uint64_t{share.chunk_end} * w.k_blocks()].index;
  elements = static_cast<double>(last - first);
  const double cols = std::max<double>(share.col_end - share.col_begin, figures.flops_per_cycle / 4);
  program::PhaseTimes seconds;
  seconds[program::Phase::compute] = 2 * elements * cols / (0.6 * figures.flops_per_cycle * figures.ghz * 1e9);
  return seconds;
}

std::vector<ElementCut> element_candidates(const ElementWeight&, uint32_t n, uint32_t threads, bool,
                                           const machine::HostFigures& figures) {
  const uint32_t lanes = std::max(4U, static_cast<uint32_t>(figures.flops_per_cycle / 4));
  std::vector<ElementCut> cuts;
  for (const bool by_rows : {true, false}) {
    ElementCut cut;
    (by_rows ? cut.row_parts : cut.col_parts) = static_cast<uint16_t>(threads);
    cut.panel_cols = static_cast<uint16_t>(n == 1 ? 1 : 4 * lanes);
    cuts.push_back(cut);
  }
  return cuts;
}

}  // namespace tessera::kernels
