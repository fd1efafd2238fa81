// The loop nest of a slice: panels of columns, groups of chunks, k-blocks, chunks, row groups.
#if defined(TESSERA_ELEMENT_SPARSE_SLICE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ELEMENT_SPARSE_SLICE_INL_H_
#undef TESSERA_ELEMENT_SPARSE_SLICE_INL_H_
#else
#define TESSERA_ELEMENT_SPARSE_SLICE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/columns-inl.h"
#include "kernels/common/epilogue-inl.h"
#include "kernels/common/panels-inl.h"
#include "kernels/common/seen-inl.h"
#include "kernels/host/element_sparse/column-inl.h"
#include "kernels/host/element_sparse/layout.h"
#include "kernels/host/element_sparse/row_groups-inl.h"
#include "kernels/host/element_sparse/rows-inl.h"
#include "kernels/host/element_sparse/tasks-inl.h"
#include "kernels/host/element_sparse/whole_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The inner loop on kVectors vectors of columns.
template <class D, size_t kVectors>
struct TaskLoop {
  static constexpr bool kByRows = false;
  using Packed = PackedRows<kVectors * hn::MaxLanes(D())>;
  using Kept = KeptRows<D, kVectors>;
  using New = NewRows<D, kVectors>;
  using OfY = RowsOfY<D, kVectors>;
  static size_t width() { return kVectors * hn::Lanes(D()); }
  static HWY_INLINE void run(const RowGroup& row_group, const float* values, const uint32_t* words,
                             const ElementOperands& operands) {
    run(row_group, values, words, Packed{operands.x}, Kept{operands.y});
  }
  template <class RowsOfX, class Rows>
  static HWY_INLINE void run(const RowGroup& row_group, const float* values, const uint32_t* words,
                             const RowsOfX& x, const Rows& rows) {
    // At most sixteen sums with 32 registers, twelve with sixteen.
    constexpr size_t kMostSums = HWY_TARGET == HWY_AVX2 ? 12 : 16;
    constexpr size_t kMostTasks = kMostSums / (2 * kVectors);
    constexpr size_t kTasks = kMostTasks >= 4 ? 4 : kMostTasks >= 2 ? 2 : 1;
    run_tasks<kVectors, kTasks>(D(), row_group, values, words, x, rows);
  }
};

// The row-by-row loop on kVectors vectors of columns.
template <class D, size_t kVectors>
struct RowLoop {
  static constexpr bool kByRows = true;
  using New = NewRows<D, kVectors>;
  using OfY = RowsOfY<D, kVectors>;
  static size_t width() { return kVectors * hn::Lanes(D()); }
  template <class Rows>
  static HWY_INLINE void run(const RowGroup& row_group, const float* values, const uint32_t* words,
                             const ScatteredRows& x, const Rows& rows) {
    run_rows<kVectors>(D(), row_group, values, words, x, rows);
  }
};

// The inner loop on a single column; X says how elements of x are found.
template <class X>
struct ColumnLoop {
  static constexpr bool kByRows = false;
  static size_t width() { return 1; }
  static HWY_INLINE void run(const RowGroup& row_group, const float* values, const uint32_t* words,
                             const ElementOperands& operands) {
    run_column(row_group, values, words, X(operands.x), operands.y);
  }
};

inline void prefetch_l2(const float* line) { __builtin_prefetch(line, 0, 2); }

// Rows of a row-major X that will be packed soon, prefetched into the L2 cache: the L1 cache is full of
// current ones. Rows are often a power of two apart, which no hardware prefetcher follows.
struct ComingRows {
  MatrixView<const float> x;
  uint32_t row;
  uint32_t end;
  int64_t col;
  uint32_t cols;
  uint32_t step;

  HWY_INLINE void advance() {
    if (x.col_stride != 1) return;
    for (const uint32_t stop = std::min(end, row + step); row < stop; ++row) {
      const float* line = x.pointer_to(row, col);
      for (uint32_t c = 0; c < cols; c += 16) prefetch_l2(line + c);
      prefetch_l2(line + cols - 1);
    }
  }
};

// One panel of columns of a slice.
template <class Loop>
class PanelSlice {
 public:
  // A thread that helps has a scratch of its own; its time is not split into phases.
  PanelSlice(const ElementSlice& slice, uint32_t col, uint32_t cols, float* scratch)
      : slice_(slice),
        w_(slice.weight),
        clock_(scratch == slice.scratch ? slice.clock : nullptr),
        rotation_(rotation_of_y(slice)),
        col_(int64_t{col} - rotation_.columns),
        cols_(cols),
        keeps_x_(keeps_panel(slice.schedule, w_.chunks)) {
    x_ = scratch + scratch_of(slice).x;
    work_in(scratch);
    if (col != slice.col_begin) rotation_ = {};
  }

  // The first group copies a panel that is kept; then other threads can help with the following groups.
  void run() const {
    program::enter(clock_, program::Phase::compute);
    const uint32_t step = slice_.schedule.group_chunks;
    const uint32_t groups = (slice_.chunk_end - slice_.chunk_begin + step - 1) / step;
    if (groups == 0) return;
    run_group(0);
    if (groups == 1) return;
    program::share_work(slice_.helpers, groups - 1, slice_.scratch, [&](uint32_t i, std::byte* scratch) {
      PanelSlice panel = *this;
      panel.work_in(reinterpret_cast<float*>(scratch));
      panel.run_group(i + 1);
    });
  }

 private:
  static bool streams(const ElementSlice& slice) {
    return slice.schedule.stream_y && slice.y.col_stride == 1 && slice.epilogue.beta == 0;
  }

  // Rotation of rows of Y, and of X with them, for non-temporal stores of Y; panels are then whole vectors.
  static Rotation rotation_of_y(const ElementSlice& slice) {
    const bool are_vectors = slice.schedule.panel_cols >= kLanes;
    if (!streams(slice) || slice.seen || slice.x.col_stride != 1 || !are_vectors) return {};
    return rotation_to_align(slice.y, slice.col_begin, slice.col_end - slice.col_begin);
  }

  // Sets the scratch of the running thread; the panel of X is in the slice's scratch.
  void work_in(float* scratch) {
    const ElementScratch layout = scratch_of(slice_);
    y_ = scratch + layout.y;
    widened_ = scratch + layout.widened;
  }

  RowGroups groups() const { return {w_, widened_}; }

  size_t width() const { return Loop::width(); }

  // Sums of a chunk in the group that begins with chunk `first`.
  float* sums(uint32_t first, uint32_t chunk) const {
    return y_ + (w_.chunk_begin[chunk] - w_.chunk_begin[first] + (chunk - first)) * width();
  }

  void run_group(uint32_t group) const {
    const uint32_t first = slice_.chunk_begin + group * slice_.schedule.group_chunks;
    const uint32_t end = std::min(first + slice_.schedule.group_chunks, slice_.chunk_end);
    if constexpr (Loop::kByRows) {
      const ScatteredRows x(slice_.x.pointer_to(0, col_), slice_.x.row_stride, w_.k_block);
      for (uint32_t chunk = first; chunk < end; ++chunk) finish_chunk(chunk, x);
    } else {
      if constexpr (requires { typename Loop::OfY; }) {
        if (finishes_rows(slice_)) return finish_chunks(first, end);
      }
      add_blocks(first, end);
    }
  }

  void add_blocks(uint32_t first, uint32_t end) const {
    std::fill(sums(first, first), sums(first, end), 0.0F);
    const bool packs = !keeps_x_ || first == slice_.chunk_begin;
    for (uint32_t block = 0; block < w_.k_blocks(); ++block) {
      if (packs) pack_block(block);
      ComingRows coming = rows_after(block, packs ? row_groups_of(first, end, block) : 0);
      for (uint32_t chunk = first; chunk < end; ++chunk) {
        run_block(chunk, block, {x_of(block), sums(first, chunk)}, coming);
      }
    }
    for (uint32_t chunk = first; chunk < end; ++chunk) write(chunk, sums(first, chunk));
  }

  // The packed rows of a k-block.
  float* x_of(uint32_t block) const {
    return x_ + (keeps_x_ ? block * (w_.k_block + size_t{1}) * width() : 0);
  }

  void pack_block(uint32_t block) const {
    program::enter(clock_, program::Phase::rearrange);
    const uint32_t begin = block * w_.k_block;
    const uint32_t rows = std::min(w_.k_block, w_.cols - begin);
    copy_panel_rows(slice_.x, slice_.seen, begin, rows, w_.k_block + 1,
                    {col_, cols_, static_cast<uint32_t>(width()), x_of(block), rotation_});
    program::enter(clock_, program::Phase::compute);
  }

  uint64_t row_groups_of(uint32_t first, uint32_t end, uint32_t block) const {
    uint64_t row_groups = 0;
    for (uint32_t chunk = first; chunk < end; ++chunk) {
      const sparse::ElementBlock* at = w_.blocks + uint64_t{chunk} * w_.k_blocks() + block;
      row_groups += at[1].row_group - at[0].row_group;
    }
    return row_groups;
  }

  // The rows of X of the next k-block, to be prefetched evenly during `row_groups` row groups; none if that
  // is 0.
  ComingRows rows_after(uint32_t block, uint64_t row_groups) const {
    const uint32_t begin = std::min((block + 1) * w_.k_block, w_.cols);
    const uint32_t end = row_groups == 0 || slice_.seen ? begin : std::min((block + 2) * w_.k_block, w_.cols);
    const auto step = static_cast<uint32_t>((end - begin + row_groups) / (row_groups + 1));
    return {slice_.x, begin, end, col_, cols_, step};
  }

  void run_block(uint32_t chunk, uint32_t block, const ElementOperands& operands, ComingRows& coming) const {
    groups().each(chunk, block,
                  [&](const RowGroup& row_group, const float* values, const uint32_t* words) HWY_ATTR {
                    coming.advance();
                    Loop::run(row_group, values, words, operands);
                  });
  }

  // Computes all rows of Y of some chunks, each from its only k-block.
  void finish_chunks(uint32_t first, uint32_t end) const {
    const MatrixView<const float>& x = slice_.x;
    if (!slice_.seen && reads_in_place(x, cols_) && cols_ == width() && rotation_.columns == 0 &&
        is_aligned(x.pointer_to(0, col_))) {
      const RowsInPlace rows(x.pointer_to(0, col_), static_cast<size_t>(x.row_stride) * sizeof(float),
                             w_.k_block, kZeroRow);
      for (uint32_t chunk = first; chunk < end; ++chunk) finish_chunk(chunk, rows);
    } else {
      if (!keeps_x_ || first == slice_.chunk_begin) pack_block(0);
      for (uint32_t chunk = first; chunk < end; ++chunk) finish_chunk(chunk, typename Loop::Packed{x_});
    }
  }

  static bool is_aligned(const float* x) { return reinterpret_cast<uintptr_t>(x) % 64 == 0; }

  // Whether a row of sums is a row of Y.
  bool is_direct() const {
    const Epilogue& e = slice_.epilogue;
    return is_bounded_sum(e) && (cols_ == width() || e.beta == 0) && rotation_.columns == 0 &&
           !streams(slice_);
  }

  template <class RowsOfX>
  void finish_chunk(uint32_t chunk, const RowsOfX& x) const {
    finish_rows<Loop>(slice_, groups(), chunk, x, {is_direct(), col_, width() - cols_}, y_,
                      [&](uint32_t row, const float* sums) { write_row(row, sums); });
  }

  static constexpr uint32_t kRowsAhead = 8;

  void write(uint32_t chunk, float* sums) const {
    const uint32_t begin = w_.chunk_begin[chunk];
    const uint32_t rows = w_.chunk_begin[chunk + 1] - begin;
    if (slice_.y.col_stride == 1) {
      for (uint32_t r = 0; r < rows; ++r) {
        if (!streams(slice_)) fetch_row(begin + r + kRowsAhead);
        write_row(begin + r, sums + r * width());
      }
    } else {
      const bool stream = slice_.schedule.stream_y && streams_columns(slice_.y, slice_.epilogue);
      finish_columns(slice_.epilogue, slice_.y, begin, rows, col_, cols_, sums, width(), stream);
    }
  }

  void fetch_row(uint32_t row) const {
    const float* y = slice_.y.pointer_to(row, col_);
    for (uint32_t c = 0; c < cols_; c += 16) hwy::Prefetch(y + c);
    hwy::Prefetch(y + cols_ - 1);
  }

  void write_row(uint32_t row, const float* sums) const {
    const Epilogue& e = slice_.epilogue;
    float* y = slice_.y.pointer_to(row, col_);
    size_t first = 0;
    if (rotation_.columns != 0) {
      HWY_ALIGN float parts[kLanes];
      finish_lines(e, {sums, 0, parts, 0, 1, kLanes, bias_of(e, row), /*are_rows=*/true});
      rotation_.store(hn::Load(Floats(), parts), y);
      first = kLanes;
    }
    finish_lines(e, {sums + first, 0, y + first, 0, 1, cols_ - first, bias_of(e, row), /*are_rows=*/true,
                     streams(slice_)});
  }

  const ElementSlice& slice_;
  const ElementWeight& w_;
  program::PhaseClock* clock_;
  Rotation rotation_;  // rotation of the panel's first vector
  int64_t col_;        // first column in Y and X, minus the rotation
  uint32_t cols_;
  bool keeps_x_;
  float* x_;
  float* y_;
  float* widened_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
