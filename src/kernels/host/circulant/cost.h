// Cost of a circulant vertex on a host: cycles by phase.
#pragma once

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

program::PhaseTimes circulant_forward_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes circulant_gradients_cost(const program::Vertex& v, const machine::Machine& m);

}  // namespace tessera::kernels
