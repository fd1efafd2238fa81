// Packing in a fraction of a product's time: rows of like length become the tasks of bundles, and
// no columns are shared.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "sparse/elements/element_index.h"
#include "sparse/elements/rows_of_k_block.h"

namespace tessera::sparse {

/// Bundles for the rows of a chunk that have so many elements in a k-block, the longest first.
std::vector<RowGroup> group_by_length(std::span<const uint16_t> lengths);

/// Value places that group_by_length needs at most for `elements` elements of any pattern that is
/// cut in this way: in each k-block of a chunk, the first bundle is filled up to its longest row,
/// and each other one has at most as many places as the one before has elements.
uint64_t most_places(const ElementIndex& cut, uint64_t elements);

/// Sizes the arrays for that, so that they stay where they are for all such patterns. Each block
/// has a bundle to spare.
void reserve(ElementIndex& index, uint64_t elements);

/// Whether rows find room where their block lies: the room that it has, in bundles.
bool fits(const RowsOfKBlock& rows, const ElementIndex& index, uint32_t block);

/// Lays out blocks for their rows within so many places, each with a little room to spare if there
/// is.
void place(const std::vector<RowsOfKBlock>& rows, uint64_t places, ElementIndex& index);

/// Values that blocks take from where they were, of whose places `former` has copies, and a 0
/// behind them.
template <class T>
struct MovingValues {
  std::span<const T> former;
  uint64_t first_place;
  T* values;
};

/// Writes a block whose rows fit: bundles, words and values, and what it has to spare as bundles
/// without tasks. Moves, if any are kept, get what becomes of its places.
template <class T>
void write(const RowsOfKBlock& rows, uint32_t block, uint32_t none, ElementIndex& index,
           const MovingValues<T>& values, uint32_t* moves);

/// Packs the transposed matrix of `from` into an index that is cut for its shape. source[place] is
/// the place in `from` of the value that belongs there, `none` for filler and behind what is used;
/// it is as long as asked, or longer.
void pack_transposed(const ElementIndex& from, uint32_t none, ElementIndex& index,
                     std::vector<uint32_t>& source, const base::ParallelFor& parallel);

}  // namespace tessera::sparse
