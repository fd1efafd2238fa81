// Cost of a slice of an unstructured sparse product on a host, and candidate schedules.
#pragma once

#include <vector>

#include "kernels/host/element_sparse/element_sparse.h"
#include "machine/model/figures.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Seconds of a slice by phase (rearrange, compute), from its sizes, the exact pattern, or the slice's
/// capacity if the pattern may change, and the host's figures. Reads no values, no X and no Y; only their
/// strides.
program::PhaseTimes element_cost(const ElementSlice& slice, const machine::HostFigures& figures);

/// Schedules that may be the fastest for a product on `threads` cores.
std::vector<ElementSchedule> element_candidates(const ElementWeight& weight, uint32_t n, uint32_t threads,
                                                const machine::HostFigures& figures);

}  // namespace tessera::kernels
