// What products with butterflies cost on a host.
#pragma once

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

program::PhaseTimes butterfly_forward_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes butterfly_gradients_cost(const program::Vertex& v, const machine::Machine& m);

}  // namespace tessera::kernels
