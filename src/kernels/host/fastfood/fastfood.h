// Fastfood layers on vectors, dispatched to the active instruction set, and in plain loops.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// Vertices of the codelets of the same names, for fields of any strides.
void fastfood_forward(const program::Vertex& v);
void fastfood_gradients(const program::Vertex& v);

/// The same in float64, with transforms by their definition.
void fastfood_forward_reference(const program::Vertex& v);
void fastfood_gradients_reference(const program::Vertex& v);

}  // namespace tessera::kernels
