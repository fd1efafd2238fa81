// Cost of products with a Kronecker-sparse factor on a host: cycles by phase.
#pragma once

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

program::PhaseTimes kronecker_forward_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes kronecker_gradients_cost(const program::Vertex& v, const machine::Machine& m);

}  // namespace tessera::kernels
