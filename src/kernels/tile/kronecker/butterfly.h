// Passes of butterfly factors in plain loops.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

void butterfly_pass_reference(const program::Vertex& v);
void butterfly_pass_gradients_reference(const program::Vertex& v);

}  // namespace tessera::kernels
