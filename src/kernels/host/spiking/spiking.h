// Spiking layers on vectors, dispatched to the active instruction set, and in plain loops.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// Vertices of the codelets of the same names, for fields of any strides.
void spiking_forward(const program::Vertex& v);
void spiking_gradients(const program::Vertex& v);

/// The same by the definition, one neuron after the other.
void spiking_forward_reference(const program::Vertex& v);
void spiking_gradients_reference(const program::Vertex& v);

}  // namespace tessera::kernels
