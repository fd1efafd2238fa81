// SIMD forms of dynamic sparse products on a tile.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// bucket_product and bucket_sddmm, with their fields. False if the elements of a row are not contiguous, for
/// which there is no SIMD form.
bool apply_bucket_product(const program::Vertex& v);
bool apply_bucket_sddmm(const program::Vertex& v);

}  // namespace tessera::kernels
