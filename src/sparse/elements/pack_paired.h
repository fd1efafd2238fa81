// Packing for the fastest products: rows that share columns become the tasks of row groups.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>

#include "sparse/elements/element_index.h"

namespace tessera::sparse {

/// Packs a pattern of block size 1 into an empty index partitioned for it. Takes as long as dozens of
/// products.
void pack_paired(const Pattern& pattern, ElementIndex& index);

/// Packs a sample for predictions alone, without index words: packs k-blocks of chunks with about `sampled`
/// of the non-zeros, and assumes that each other k-block is like the packed one before it, with row groups in
/// proportion to its non-zeros.
void sample_paired(const Pattern& pattern, uint64_t sampled, ElementIndex& index);

}  // namespace tessera::sparse
