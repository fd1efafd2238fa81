// Packing for the fastest products: rows that share columns become the tasks of row groups.
#pragma once

#include <tessera/sparse.h>

#include "sparse/elements/element_index.h"

namespace tessera::sparse {

/// Packs a pattern of block size 1 into an empty index partitioned for it. Takes as long as dozens of
/// products.
void pack_paired(const Pattern& pattern, ElementIndex& index);

}  // namespace tessera::sparse
