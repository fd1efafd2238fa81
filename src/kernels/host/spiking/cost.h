// What spiking vertices cost.
#pragma once

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

program::PhaseTimes spiking_forward_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes spiking_gradients_cost(const program::Vertex& v, const machine::Machine& m);

}  // namespace tessera::kernels
