// The code of spiking vertices on tiles.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

void spiking_tile_forward_reference(const program::Vertex& v);
void spiking_tile_lists_reference(const program::Vertex& v);
void spiking_tile_backward_reference(const program::Vertex& v);
void spiking_tile_rows_reference(const program::Vertex& v);

}  // namespace tessera::kernels
