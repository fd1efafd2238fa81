// Transposes on vectors.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out = in, elements of 2 or 4 bytes, where columns of `in` and rows of `out` are contiguous.
void transpose_elements(const program::FieldView& in, const program::FieldView& out);

}  // namespace tessera::kernels
