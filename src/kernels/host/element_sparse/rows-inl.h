// The inner loop for panels as wide as the registers allow: one row of W at a time, times rows of X in place.
// Each row of X is read once, contiguously, which matters when they come from the L2 cache.
#if defined(TESSERA_ELEMENT_SPARSE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ELEMENT_SPARSE_ROWS_INL_H_
#undef TESSERA_ELEMENT_SPARSE_ROWS_INL_H_
#else
#define TESSERA_ELEMENT_SPARSE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/host/element_sparse/layout.h"
#include "kernels/host/element_sparse/tasks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of X at any distance and alignment, by the scaled column in half a word.
class ScatteredRows {
 public:
  ScatteredRows(const float* x, int64_t row_stride, uint32_t filler_column)
      : x_(x), row_stride_(row_stride), filler_(filler_column * sparse::kColumnScale) {}

  HWY_INLINE const float* at(uint32_t half_word) const {
    return x_ + static_cast<int64_t>(half_word / sparse::kColumnScale) * row_stride_;
  }
  HWY_INLINE bool is_filler(uint32_t half_word) const { return half_word == filler_; }

 private:
  const float* x_;
  int64_t row_stride_;
  uint32_t filler_;
};

// The row of one side of a task. Its values and words begin at its lane in the row group.
template <class D, size_t kVectors>
HWY_INLINE void add_row(D d, size_t shared_steps, size_t unpaired_steps, uint32_t side,
                        const float* HWY_RESTRICT values, const uint32_t* HWY_RESTRICT words, ScatteredRows x,
                        RowSum<D, kVectors>& sum) {
  constexpr size_t kStep = kRowGroupLanes;
  const float* w = values + side * kStep;
  for (size_t s = 0; s < shared_steps; s += 2, words += kStep, w += 4 * kStep) {
    sum.add(d, w[0], x.at(*words & 0xFFFF));
    sum.add(d, w[2 * kStep], x.at(*words >> 16));
  }
  for (size_t s = 0; s < unpaired_steps; ++s, words += kStep, w += 2 * kStep) {
    const uint32_t half_word = *words >> 16 * side & 0xFFFF;
    if (x.is_filler(half_word)) return;
    sum.add(d, *w, x.at(half_word));
  }
}

template <size_t kVectors, class D, class Rows>
HWY_INLINE void run_rows(D d, const RowGroup& row_group, const float* HWY_RESTRICT values,
                         const uint32_t* HWY_RESTRICT words, const ScatteredRows& x, const Rows& rows) {
  const size_t shared = row_group.shared_steps;
  const size_t steps = shared + row_group.unpaired_steps;
  const float* next_values = values + row_group.value_count();
  const uint32_t* next_words = words + row_group.index_count();
  for (size_t lane = 0; lane < row_group.tasks; ++lane) {
    prefetch_part(next_values, next_words, steps);
    next_values += 2 * steps;
    next_words += steps;
    const size_t unpaired = row_group.quarter_steps[lane / sparse::kQuarterLanes];
    for (uint32_t side = 0; side < 2; ++side) {
      const size_t row = (side == 0 ? row_group.row_a : row_group.row_b)[lane];
      RowSum<D, kVectors> sum;
      rows.begin(d, row, sum);
      add_row(d, shared, unpaired, side, values + lane, words + lane, x, sum);
      rows.end(d, row, sum);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
