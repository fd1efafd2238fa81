// How an unstructured sparse matrix is cut into chunks of rows and k-blocks of columns.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <vector>

#include "sparse/elements/element_index.h"

namespace tessera::sparse {

/// How to cut a matrix. Zeros stand for a choice by density.
struct ElementPacking {
  uint32_t k_block = 0;     ///< columns of a k-block, at most kMaxKBlock
  uint32_t chunk_rows = 0;  ///< rows of a chunk at most; itself at most kMaxChunkRows
  uint32_t parts = 4;       ///< chunks wanted at least, for threads to share out; 1 or more
};

/// An index without elements, cut for the pattern: chunks have like numbers of non-zeros.
ElementIndex split_for(const Pattern& pattern, const ElementPacking& packing);

/// The same for any pattern of a shape with about so many non-zeros: chunks have like numbers of
/// rows.
ElementIndex split_for_shape(uint32_t rows, uint32_t cols, uint64_t non_zeros, const ElementPacking& packing);

}  // namespace tessera::sparse
