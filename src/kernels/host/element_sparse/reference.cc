// The unstructured sparse product in plain loops.
#include <vector>

#include "kernels/common/element.h"
#include "kernels/host/element_sparse/element_sparse.h"

namespace tessera::kernels {
namespace {

using sparse::ElementBlock;
using sparse::kRowGroupLanes;
using sparse::RowGroup;

/// Adds the tasks of a row group to the sums of one column, one per row of the chunk and one for lanes
/// without a row. x begins at the k-block.
struct RowGroupWalk {
  const ElementWeight& w;
  const RowGroup& row_group;
  uint64_t value;
  uint64_t index;
  const float* x;
  int64_t x_stride;

  void add(float& sum, uint32_t scaled, uint32_t step, uint32_t lane) const {
    const uint32_t column = scaled / sparse::kColumnScale;
    if (column == w.k_block) return;  // filler
    sum += value_at(w.type, w.values, value + uint64_t{step} * kRowGroupLanes + lane) * x[column * x_stride];
  }

  void run(std::vector<float>& sums) const {
    for (uint32_t lane = 0; lane < row_group.tasks; ++lane) {
      float& a = sums[row_group.row_a[lane]];
      float& b = sums[row_group.row_b[lane]];
      const uint32_t* word = w.indices + index + lane;
      uint32_t step = 0;
      for (uint32_t s = 0; s < row_group.shared_steps; s += 2, step += 4, word += kRowGroupLanes) {
        add(a, *word & 0xFFFF, step, lane);
        add(b, *word & 0xFFFF, step + 1, lane);
        add(a, *word >> 16, step + 2, lane);
        add(b, *word >> 16, step + 3, lane);
      }
      for (uint32_t s = 0; s < row_group.unpaired_steps; ++s, step += 2, word += kRowGroupLanes) {
        add(a, *word & 0xFFFF, step, lane);
        add(b, *word >> 16, step + 1, lane);
      }
    }
  }
};

}  // namespace

void element_spmm_reference(const ElementSlice& slice) {
  if (slice.seen) {
    const std::vector<float> x = matrix_of(slice.x, slice.seen, slice.col_end);
    ElementSlice of_matrix = slice;
    of_matrix.x = row_major(x.data(), slice.col_end);
    of_matrix.seen = {};
    return element_spmm_reference(of_matrix);
  }
  const ElementWeight& w = slice.weight;
  for (uint32_t chunk = slice.chunk_begin; chunk < slice.chunk_end; ++chunk) {
    const uint32_t first_row = w.chunk_begin[chunk];
    const uint32_t rows = w.chunk_begin[chunk + 1] - first_row;
    for (uint32_t col = slice.col_begin; col < slice.col_end; ++col) {
      std::vector<float> sums(rows + size_t{1}, 0.0F);
      for (uint32_t block = 0; block < w.k_blocks(); ++block) {
        const ElementBlock* at = w.blocks + uint64_t{chunk} * w.k_blocks() + block;
        const float* x = slice.x.pointer_to(int64_t{block} * w.k_block, col);
        uint64_t value = at->value, index = at->index;
        for (uint64_t i = at[0].row_group; i < at[1].row_group; ++i) {
          RowGroupWalk{w, w.row_groups[i], value, index, x, slice.x.row_stride}.run(sums);
          value += w.row_groups[i].value_count();
          index += w.row_groups[i].index_count();
        }
      }
      for (uint32_t row = 0; row < rows; ++row) {
        float& y = slice.y(first_row + row, col);
        y = finish(slice.epilogue, first_row + row, sums[row], y);
      }
    }
  }
}

}  // namespace tessera::kernels
