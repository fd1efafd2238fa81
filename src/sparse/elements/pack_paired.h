// Packing for the fastest products: rows that share columns become the tasks of bundles.
#pragma once

#include <tessera/sparse.h>

#include "sparse/elements/element_index.h"

namespace tessera::sparse {

/// Packs a pattern of block size 1 into an index that is cut for it and has no elements yet. Takes
/// as long as dozens of products.
void pack_paired(const Pattern& pattern, ElementIndex& index);

}  // namespace tessera::sparse
