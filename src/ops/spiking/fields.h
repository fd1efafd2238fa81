// Shapes and parameters of the codelets of spiking layers, for planner and builder.
#pragma once

#include <vector>

#include "kernels/host/spiking/codelet.h"
#include "ops/batch_fields.h"
#include "ops/spiking/spiking.h"

namespace tessera::ops {

/// The shape of a vertex with `samples` samples.
kernels::SpikingShape shape_of(const SpikingProblem& problem, uint32_t samples);

/// The codelet's parameters for the part of the batch that begins with `first_sample`.
std::vector<int64_t> params_of(const SpikingProblem& problem, uint32_t first_sample);

inline program::FieldView field_of(const SpikingMatrix& of) { return field_of(of.rows, of.cols, of.type); }

/// Throws UsageError for impossible sizes.
void check(const SpikingProblem& problem);

}  // namespace tessera::ops
