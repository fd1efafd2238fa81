// Splitting an unstructured sparse matrix into chunks of rows and k-blocks of columns.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>

#include "sparse/elements/element_index.h"

namespace tessera::sparse {

/// How to split a matrix. Zeros stand for a choice by the matrix alone, so that packed order does not depend
/// on the machine that runs the products: chunks are small enough for many threads to share, and large enough
/// for similar tasks to be grouped.
struct ElementPacking {
  uint32_t k_block = 0;     ///< columns of a k-block, at most kMaxKBlock
  uint32_t chunk_rows = 0;  ///< maximum number of rows of a chunk, at most kMaxChunkRows
  bool whole_rows = true;   ///< whether has_whole_rows() is taken into account
};

/// Whether one k-block has all columns of a matrix: below a density of 3/40 where one k-block can, below 1/32
/// for many columns, and below 1/8 for few. Sums that are complete after one k-block need not pass through
/// scratch, which saves more than smaller k-blocks do, whose rows of X stay in the L1 cache, or are copied
/// once and stay in the L2 cache.
bool has_whole_rows(uint32_t rows, uint32_t cols, uint64_t non_zeros);

/// An empty index split for the pattern: chunks have similar numbers of non-zeros.
ElementIndex split_for(const Pattern& pattern, const ElementPacking& packing);

/// An empty index split for any pattern of a shape with about `non_zeros` non-zeros: chunks have similar
/// numbers of rows. They are longer than for a known pattern, as each needs space for the worst pattern.
ElementIndex split_for_shape(uint32_t rows, uint32_t cols, uint64_t non_zeros, const ElementPacking& packing);

}  // namespace tessera::sparse
