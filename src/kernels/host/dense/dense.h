// Dense products on vectors, dispatched to the active instruction set. Rows of all fields are contiguous.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// Vertices of the codelets of the same names. Their bits depend only on the operands and the instruction
/// set, not on how the product is partitioned.
void panel_forward(const program::Vertex& v);
void panel_input_gradient(const program::Vertex& v);
void panel_weight_gradient(const program::Vertex& v, bool adds);

/// The same in plain loops, for any strides.
void panel_forward_reference(const program::Vertex& v);
void panel_input_gradient_reference(const program::Vertex& v);
void panel_weight_gradient_reference(const program::Vertex& v, bool adds);

}  // namespace tessera::kernels
