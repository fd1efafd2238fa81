// Cost of a slice of an SDDMM on a host, and candidate schedules.
#pragma once

#include <vector>

#include "kernels/host/sddmm/sddmm.h"
#include "machine/model/figures.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Seconds of a slice by phase (rearrange, compute), from its sizes, the exact pattern (or the capacity, if
/// the pattern is not known yet) and the host's figures. Reads strides, no payload.
program::PhaseTimes block_sddmm_cost(const BlockSddmmSlice& slice, const machine::HostFigures& figures);
program::PhaseTimes element_sddmm_cost(const ElementSddmmSlice& slice, const machine::HostFigures& figures);

/// Schedules that may be the fastest for n columns.
std::vector<BlockSddmmSchedule> block_sddmm_candidates(const BlockWeight& weight, uint32_t n,
                                                       uint32_t threads, const machine::HostFigures& figures);
std::vector<ElementSddmmSchedule> element_sddmm_candidates(const ElementWeight& weight, uint32_t n,
                                                           uint32_t threads,
                                                           const machine::HostFigures& figures);

}  // namespace tessera::kernels
