// SIMD form of casts.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out = in, converted to the type of out. Fields of one shape.
void apply_cast(const program::FieldView& in, const program::FieldView& out);

}  // namespace tessera::kernels
