// How an unstructured sparse matrix is split into chunks of rows and k-blocks of columns.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>

#include "sparse/elements/element_index.h"

namespace tessera::sparse {

/// How to split a matrix. Zeros mean a choice by the matrix alone, so that packed order does not depend on
/// what runs the products: chunks are small enough for many threads to share, and large enough for similar
/// tasks to be grouped.
struct ElementPacking {
  uint32_t k_block = 0;     ///< columns of a k-block, at most kMaxKBlock
  uint32_t chunk_rows = 0;  ///< rows of a chunk at most; itself at most kMaxChunkRows
  bool whole_rows = true;   ///< take has_whole_rows() into account
};

/// Whether one k-block has all columns of such a matrix: below a density of 3/40 if it can, of 1/32 if they
/// are many. Sums that are complete need no detour through scratch, which saves more than finding the rows of
/// X in the L1 cache, or copying them once so that they stay in the L2 cache.
bool has_whole_rows(uint32_t rows, uint32_t cols, uint64_t non_zeros);

/// An empty index split for the pattern: chunks have similar numbers of non-zeros.
ElementIndex split_for(const Pattern& pattern, const ElementPacking& packing);

/// The same for any pattern of a shape with about so many non-zeros: chunks have like numbers of
/// rows. They are longer than those of a pattern that is known: each needs room for the worst of them.
ElementIndex split_for_shape(uint32_t rows, uint32_t cols, uint64_t non_zeros, const ElementPacking& packing);

}  // namespace tessera::sparse
