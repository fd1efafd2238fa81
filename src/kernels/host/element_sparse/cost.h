// What a share of an unstructured sparse product costs on a host, and the cuts worth weighing.
#pragma once

#include <vector>

#include "kernels/host/element_sparse/element_sparse.h"
#include "machine/model/figures.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Seconds of a share by phase (pack, compute), from its sizes, the exact pattern, or the share's
/// capacity where that may change, and the host's figures. Reads no values, no X and no Y; their strides
/// only.
program::PhaseTimes element_cost(const ElementSlice& slice, const machine::HostFigures& figures);

/// Cuts that may be the best for such a product on `threads` cores.
std::vector<ElementSchedule> element_candidates(const ElementWeight& weight, uint32_t n, uint32_t threads,
                                                const machine::HostFigures& figures);

}  // namespace tessera::kernels
