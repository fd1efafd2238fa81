// The unstructured sparse product in plain loops.
#include <vector>

#include "kernels/element.h"
#include "kernels/element_sparse/element_sparse.h"

namespace tessera::kernels {
namespace {

using sparse::ElementBlock;
using sparse::ElementBundle;
using sparse::kBundleLanes;

/// Adds the tasks of a bundle to the sums of one column, one a row of the chunk and one for lanes
/// without a row. x begins the k-block.
struct BundleWalk {
  const ElementWeight& w;
  const ElementBundle& bundle;
  uint64_t value;
  uint64_t index;
  const float* x;
  int64_t x_stride;

  void add(float& sum, uint32_t scaled, uint32_t step, uint32_t lane) const {
    const uint32_t column = scaled / sparse::kColumnScale;
    if (column == w.k_block) return;  // filler
    sum += value_at(w.type, w.values, value + uint64_t{step} * kBundleLanes + lane) * x[column * x_stride];
  }

  void run(std::vector<float>& sums) const {
    for (uint32_t lane = 0; lane < bundle.tasks; ++lane) {
      float& a = sums[bundle.row_a[lane]];
      float& b = sums[bundle.row_b[lane]];
      const uint32_t* word = w.indices + index + lane;
      uint32_t step = 0;
      for (uint32_t s = 0; s < bundle.shared_steps; s += 2, step += 4, word += kBundleLanes) {
        add(a, *word & 0xFFFF, step, lane);
        add(b, *word & 0xFFFF, step + 1, lane);
        add(a, *word >> 16, step + 2, lane);
        add(b, *word >> 16, step + 3, lane);
      }
      for (uint32_t s = 0; s < bundle.apart_steps; ++s, step += 2, word += kBundleLanes) {
        add(a, *word & 0xFFFF, step, lane);
        add(b, *word >> 16, step + 1, lane);
      }
    }
  }
};

}  // namespace

void element_spmm_reference(const ElementShare& share) {
  const ElementWeight& w = share.weight;
  for (uint32_t chunk = share.chunk_begin; chunk < share.chunk_end; ++chunk) {
    const uint32_t first_row = w.chunk_begin[chunk];
    const uint32_t rows = w.chunk_begin[chunk + 1] - first_row;
    for (uint32_t col = share.col_begin; col < share.col_end; ++col) {
      std::vector<float> sums(rows + size_t{1}, 0.0F);
      for (uint32_t block = 0; block < w.k_blocks(); ++block) {
        const ElementBlock* at = w.blocks + uint64_t{chunk} * w.k_blocks() + block;
        const float* x = &share.x(int64_t{block} * w.k_block, col);
        uint64_t value = at->value, index = at->index;
        for (uint64_t i = at[0].bundle; i < at[1].bundle; ++i) {
          BundleWalk{w, w.bundles[i], value, index, x, share.x.row_stride}.run(sums);
          value += w.bundles[i].value_count();
          index += w.bundles[i].index_count();
        }
      }
      for (uint32_t row = 0; row < rows; ++row) {
        float& y = share.y(first_row + row, col);
        y = finish(share.epilogue, first_row + row, sums[row], y);
      }
    }
  }
}

}  // namespace tessera::kernels
