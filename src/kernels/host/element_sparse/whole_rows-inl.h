// Rows that are complete after a chunk's only k-block.
#if defined(TESSERA_ELEMENT_SPARSE_WHOLE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ELEMENT_SPARSE_WHOLE_ROWS_INL_H_
#undef TESSERA_ELEMENT_SPARSE_WHOLE_ROWS_INL_H_
#else
#define TESSERA_ELEMENT_SPARSE_WHOLE_ROWS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/host/element_sparse/layout.h"
#include "kernels/host/element_sparse/row_groups-inl.h"
#include "kernels/host/element_sparse/tasks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_ALIGN inline constexpr float kZeroRow[kMaxPanelCols] = {};

// Part of the rows of Y, as wide as the loop but for `missing` columns: whether its sums may go there
// straight from registers, from column `first` on.
struct PartOfY {
  bool is_direct;
  int64_t first;
  size_t missing;
};

// Computes a chunk's rows of Y. `sums` has space for the rows' sums, which write(row, sums) takes.
template <class Loop, class RowsOfX, class Write>
HWY_INLINE void finish_rows(const ElementSlice& slice, const RowGroups& groups, uint32_t chunk,
                            const RowsOfX& x, const PartOfY& part, float* sums, const Write& write) {
  const uint32_t begin = slice.weight.chunk_begin[chunk];
  const uint32_t rows = slice.weight.chunk_begin[chunk + 1] - begin;
  std::array<bool, sparse::kMaxChunkRows + 1> done;
  std::fill_n(done.begin(), rows, false);
  const auto mark = [&](const RowGroup& row_group) {
    for (const uint16_t row : row_group.row_a) done[row] = true;
    for (const uint16_t row : row_group.row_b) done[row] = true;
  };
  if (part.is_direct) {
    const Epilogue& e = slice.epilogue;
    const typename Loop::OfY of_y{slice.y.pointer_to(begin, part.first),
                                  slice.y.row_stride,
                                  rows,
                                  sums,
                                  bias_of(e, begin),
                                  e.beta != 0,
                                  e.activation,
                                  part.missing};
    groups.each(chunk, 0,
                [&](const RowGroup& row_group, const float* values, const uint32_t* words) HWY_ATTR {
                  Loop::run(row_group, values, words, x, of_y);
                  mark(row_group);
                });
  } else {
    groups.each(chunk, 0,
                [&](const RowGroup& row_group, const float* values, const uint32_t* words) HWY_ATTR {
                  Loop::run(row_group, values, words, x, typename Loop::New{sums});
                  mark(row_group);
                  for (uint32_t lane = 0; lane < row_group.tasks; ++lane)
                    for (const uint32_t row : {row_group.row_a[lane], row_group.row_b[lane]})
                      if (row < rows) write(begin + row, sums + row * Loop::width());
                });
  }
  for (uint32_t row = 0; row < rows; ++row)
    if (!done[row]) write(begin + row, kZeroRow);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
