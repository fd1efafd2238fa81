// Packing in a fraction of a product's time: rows of similar length become the tasks of row groups; no
// columns are shared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "sparse/elements/element_index.h"
#include "sparse/elements/rows_of_k_block.h"

namespace tessera::sparse {

/// Row groups for the rows of a chunk with these numbers of elements in a k-block, longest first.
std::vector<RowGroup> group_by_length(std::span<const uint16_t> lengths);

/// Maximum number of value places that group_by_length needs for `elements` elements of any pattern with
/// these chunks and k-blocks: in each k-block of a chunk the first row group is filled up to its longest row,
/// and each other row group has at most as many places as the preceding one has elements.
uint64_t most_places(const ElementIndex& index, uint64_t elements);

/// Sizes the arrays for any pattern of `elements` elements, so that they need not move. Each block has a
/// spare row group.
void reserve(ElementIndex& index, uint64_t elements);

/// Whether rows fit in the space of their block, in row groups.
bool fits(const RowsOfKBlock& rows, const ElementIndex& index, uint32_t block);

/// Lays out blocks for their rows within `places` places, each with a little spare space if there is any.
void place(const std::vector<RowsOfKBlock>& rows, uint64_t places, ElementIndex& index);

/// Values that blocks gather from their previous places; `former` has copies of the values there, followed by
/// a 0.
template <class T>
struct MovingValues {
  std::span<const T> former;
  uint64_t first_place;
  T* values;

  void move(uint32_t from, uint32_t none, uint64_t to) const {
    values[to] = former[from == none ? former.size() - 1 : from - first_place];
  }
};

/// For values that the caller keeps, and moves afterwards.
struct NoValues {
  void move(uint32_t, uint32_t, uint64_t) const {}
};

/// Writes a block whose rows fit: row groups, words and values, and empty row groups in the spare space.
/// Records the moves of its places if requested.
template <class Values>
void write(const RowsOfKBlock& rows, uint32_t block, uint32_t none, ElementIndex& index, const Values& values,
           uint32_t* moves);

/// Packs the transpose of `from` into an index partitioned for its shape. source[place] is the place in
/// `from` of the value for that place, `none` for filler and unused places; it may be longer than needed.
void pack_transposed(const ElementIndex& from, uint32_t none, ElementIndex& index,
                     std::vector<uint32_t>& source, const base::ParallelFor& parallel);

}  // namespace tessera::sparse
