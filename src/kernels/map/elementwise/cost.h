// Cost of an element, by operation.
#pragma once

#include "kernels/map/elementwise/elementwise.h"

namespace tessera::kernels {

/// Vector operations per element on a host, as host_cycles() counts them.
double host_operations(Unary op);
double host_operations(Binary op);

/// Cycles per vector of a worker of a tile.
struct VectorCycles {
  double of_float2 = 0;
  double of_half4 = 0;
};
VectorCycles tile_vector_cycles(Unary op);
VectorCycles tile_vector_cycles(Binary op);

}  // namespace tessera::kernels
