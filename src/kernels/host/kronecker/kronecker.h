// Products with Kronecker-sparse factors on vectors, dispatched to the active instruction set.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// Vertices of the codelets of the same names.
void kronecker_forward(const program::Vertex& v);
void kronecker_gradients(const program::Vertex& v);

/// The same in plain loops, for any strides.
void kronecker_forward_reference(const program::Vertex& v);
void kronecker_gradients_reference(const program::Vertex& v);

}  // namespace tessera::kernels
