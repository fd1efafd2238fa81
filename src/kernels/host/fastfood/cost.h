// Cost of a fastfood vertex on a host: cycles by phase.
#pragma once

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

program::PhaseTimes fastfood_forward_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes fastfood_gradients_cost(const program::Vertex& v, const machine::Machine& m);

}  // namespace tessera::kernels
