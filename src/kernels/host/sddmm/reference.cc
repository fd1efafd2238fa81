// SDDMM in plain loops.
#include <vector>

#include "kernels/host/sddmm/layout.h"

namespace tessera::kernels {
namespace {

float dot(const SddmmOperands& o, int64_t row, int64_t col) {
  float sum = 0;
  for (uint32_t j = 0; j < o.n; ++j) sum += o.dy(row, j) * o.x(col, j);
  return sum;
}

void update(const SddmmOperands& o, int64_t row, int64_t col, float& dw) {
  const float value = o.alpha * dot(o, row, col);
  dw = o.beta == 0 ? value : value + o.beta * dw;
}

/// The places of a row group: 16 per product, one per task.
class RowGroupWalk {
 public:
  RowGroupWalk(const SddmmOperands& o, const ElementWeight& w, uint32_t first_row, uint32_t rows,
               uint32_t first_col)
      : o_(o), w_(w), first_row_(first_row), rows_(rows), first_col_(first_col) {}

  void run(const sparse::RowGroup& row_group, const uint32_t* words, float* dw) const {
    for (uint32_t t = 0; t < sparse::kRowGroupLanes; ++t) {
      const uint32_t* word = words + t;
      float* to = dw + t;
      const auto next = [&](uint32_t row, uint32_t scaled) {
        place(row, scaled / sparse::kColumnScale, *to);
        to += sparse::kRowGroupLanes;
      };
      for (uint32_t s = 0; s < row_group.shared_steps; s += 2, word += sparse::kRowGroupLanes) {
        next(row_group.row_a[t], *word & 0xFFFF);
        next(row_group.row_b[t], *word & 0xFFFF);
        next(row_group.row_a[t], *word >> 16);
        next(row_group.row_b[t], *word >> 16);
      }
      for (uint32_t s = 0; s < row_group.unpaired_steps; ++s, word += sparse::kRowGroupLanes) {
        next(row_group.row_a[t], *word & 0xFFFF);
        next(row_group.row_b[t], *word >> 16);
      }
    }
  }

 private:
  void place(uint32_t row, uint32_t col, float& dw) const {
    if (row < rows_ && col < w_.k_block) return update(o_, first_row_ + row, first_col_ + col, dw);
    dw = 0;
  }

  const SddmmOperands& o_;
  const ElementWeight& w_;
  uint32_t first_row_;
  uint32_t rows_;
  uint32_t first_col_;
};

/// What a window sees as X itself.
template <class Slice>
void on_matrix(const Slice& slice, void (*reference)(const Slice&)) {
  const SddmmOperands& o = slice.operands;
  const std::vector<float> x = matrix_of(o.x, o.seen, o.n);
  Slice of_matrix = slice;
  of_matrix.operands.x = row_major(x.data(), o.n);
  of_matrix.operands.seen = {};
  reference(of_matrix);
}

}  // namespace

void block_sddmm_reference(const BlockSddmmSlice& slice) {
  if (slice.operands.seen) return on_matrix(slice, block_sddmm_reference);
  const BlockWeight& w = slice.weight;
  const SddmmOperands& o = slice.operands;
  const uint32_t b = w.block_size;
  const sparse::BlockOrder order = sparse::order_of(b);
  for (uint32_t block_row = slice.block_row_begin; block_row < slice.block_row_end; ++block_row)
    for (uint32_t i = w.row_begin[block_row]; i < w.row_begin[block_row + 1]; ++i) {
      float* dw = o.dw + size_t{w.slots == nullptr ? i : w.slots[i]} * order.block_values();
      for (uint32_t r = 0; r < b; ++r)
        for (uint32_t c = 0; c < b; ++c) {
          const uint32_t row = block_row * b + r, col = w.column(i) * b + c;
          float& place = dw[order.offset(r, c)];
          if (row < w.rows && col < w.cols)
            update(o, row, col, place);
          else
            place = 0;
        }
    }
}

void element_sddmm_reference(const ElementSddmmSlice& slice) {
  if (slice.operands.seen) return on_matrix(slice, element_sddmm_reference);
  const ElementWeight& w = slice.weight;
  for (uint32_t chunk = slice.chunk_begin; chunk < slice.chunk_end; ++chunk) {
    const uint32_t first_row = w.chunk_begin[chunk];
    const uint32_t rows = w.chunk_begin[chunk + 1] - first_row;
    for (uint32_t block = 0; block < w.k_blocks(); ++block) {
      const sparse::ElementBlock* at = w.blocks + uint64_t{chunk} * w.k_blocks() + block;
      const RowGroupWalk walk(slice.operands, w, first_row, rows, block * w.k_block);
      const uint32_t* words = w.indices + at->index;
      float* dw = slice.operands.dw + at->value;
      for (uint64_t i = at[0].row_group; i < at[1].row_group; ++i) {
        walk.run(w.row_groups[i], words, dw);
        words += w.row_groups[i].index_count();
        dw += w.row_groups[i].value_count();
      }
    }
  }
  clear_rest(slice);
}

}  // namespace tessera::kernels
