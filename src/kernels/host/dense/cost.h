// Cost of a dense vertex on a host: cycles by phase.
#pragma once

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

program::PhaseTimes panel_forward_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes panel_input_gradient_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes panel_weight_gradient_cost(const program::Vertex& v, const machine::Machine& m);

}  // namespace tessera::kernels
