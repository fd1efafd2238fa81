// What planner and builder of spiking layers both know of the codelets.
#pragma once

#include <vector>

#include "kernels/host/spiking/codelet.h"
#include "ops/spiking/spiking.h"

namespace tessera::ops {

/// Of so many samples.
kernels::SpikingShape shape_of(const SpikingProblem& problem, uint32_t samples);

/// The codelet's parameters for the part of the batch that begins with this sample.
std::vector<int64_t> params_of(const SpikingProblem& problem, uint32_t first_sample);

/// Throws UsageError for impossible sizes.
void check(const SpikingProblem& problem);

}  // namespace tessera::ops
