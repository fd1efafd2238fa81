// SIMD forms of products on a tile.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// The codelets of these names, with their fields. False where the elements of
/// a row do not follow one another, which has no fast form.
bool apply_sparse_product(const program::Vertex& v);
bool apply_sparse_transposed_product(const program::Vertex& v);
bool apply_tile_sddmm(const program::Vertex& v);
bool apply_dense_product(const program::Vertex& v);
bool apply_dense_input_gradient(const program::Vertex& v);
bool apply_dense_weight_gradient(const program::Vertex& v);

}  // namespace tessera::kernels
