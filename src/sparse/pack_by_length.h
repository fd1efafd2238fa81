// Packing in a fraction of a product's time: rows of like length become the tasks of bundles, and
// no columns are shared.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "sparse/element_index.h"
#include "sparse/row_cuts.h"

namespace tessera::sparse {

/// Bundles for the rows of a chunk that have so many elements in a k-block, the longest first.
std::vector<ElementBundle> bundle_by_length(std::span<const uint16_t> lengths);

/// Value places that bundle_by_length needs at most for `elements` elements of any pattern that is
/// cut in this way: in each k-block of a chunk, the first bundle is filled up to its longest row,
/// and each other one has at most as many places as the one before has elements.
uint64_t most_places(const ElementIndex& cut, uint64_t elements);

/// Sizes the arrays for that, so that they stay where they are for all such patterns.
void reserve(ElementIndex& index, uint64_t elements);

/// What was packed before a new pattern, so that values can follow.
struct FormerPattern {
  const ElementIndex& index;  ///< cut alike
  uint32_t none;              ///< stands for no place
};

/// Packs a pattern of block size 1 into an index that is cut for its shape, in place of what it
/// held. With a former pattern, moves gets for each of its places the former one of the same element,
/// `none` where there is no such element, and where there is no element.
void pack_by_length(const Pattern& pattern, const RowCuts& cuts, ElementIndex& index,
                    const base::ParallelFor& parallel, const FormerPattern* former = nullptr,
                    std::vector<uint32_t>* moves = nullptr);

/// Packs the transposed matrix of `from` into an index that is cut for its shape. source[place] is
/// the place in `from` of the value that belongs there, `none` for filler and behind what is used;
/// it is as long as asked, or longer.
void pack_transposed(const ElementIndex& from, uint32_t none, ElementIndex& index,
                     std::vector<uint32_t>& source, const base::ParallelFor& parallel);

}  // namespace tessera::sparse
