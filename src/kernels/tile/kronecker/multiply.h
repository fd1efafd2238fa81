// SIMD forms of products with groups on a tile.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// The codelets of these names, with their fields. False where the elements of a row do not follow one
/// another, which has no fast form.
bool apply_kronecker_product(const program::Vertex& v);
bool apply_kronecker_weight_gradient(const program::Vertex& v);

}  // namespace tessera::kernels
