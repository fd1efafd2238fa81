// What spiking vertices on tiles cost. Where lists are not known, as in dry runs, they have the expected
// lengths.
#pragma once

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

program::PhaseTimes spiking_tile_forward_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes spiking_tile_lists_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes spiking_tile_backward_cost(const program::Vertex& v, const machine::Machine& m);
program::PhaseTimes spiking_tile_rows_cost(const program::Vertex& v, const machine::Machine& m);

}  // namespace tessera::kernels
