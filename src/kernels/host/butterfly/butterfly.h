// Products with butterfly matrices on vectors, dispatched to the active instruction set.
#pragma once

#include "kernels/host/butterfly/codelet.h"
#include "program/codelet.h"

namespace tessera::kernels {

ButterflyShape butterfly_shape(const program::Vertex& v);

/// Vertices of the codelets of the same names.
void butterfly_forward(const program::Vertex& v);
void butterfly_gradients(const program::Vertex& v);

/// The same in plain loops.
void butterfly_forward_reference(const program::Vertex& v);
void butterfly_gradients_reference(const program::Vertex& v);

}  // namespace tessera::kernels
