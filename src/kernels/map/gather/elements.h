// Vectorised gathering of single elements.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out[i] = source[places[i]], all of them contiguous.
void gather_elements(const program::FieldView& source, const program::FieldView& places,
                     const program::FieldView& out);

}  // namespace tessera::kernels
