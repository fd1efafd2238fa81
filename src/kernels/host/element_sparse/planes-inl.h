// A panel of places: what a window sees of images that have been copied to planes (kernels/common/planes.h).
#if defined(TESSERA_ELEMENT_SPARSE_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ELEMENT_SPARSE_PLANES_INL_H_
#undef TESSERA_ELEMENT_SPARSE_PLANES_INL_H_
#else
#define TESSERA_ELEMENT_SPARSE_PLANES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/epilogue-inl.h"
#include "kernels/common/planes-inl.h"
#include "kernels/host/element_sparse/layout.h"
#include "kernels/host/element_sparse/row_groups-inl.h"
#include "kernels/host/element_sparse/tasks-inl.h"
#include "kernels/host/element_sparse/whole_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A slice whose images are copied to planes, as the thread with `scratch` processes it.
struct PlaneSlice {
  const ElementSlice& slice;
  const Planes& planes;
  const uint32_t* begins;  // where the rows of X of each k-block begin in a piece, and zeros
  const ElementScratch layout;
  float* scratch;
};

template <class Loop>
class PlanePanel {
 public:
  // A panel of the places of a piece from `begin` on.
  PlanePanel(const PlaneSlice& of, const Planes::Piece& piece, uint32_t begin)
      : slice_(of.slice),
        w_(slice_.weight),
        groups_(w_, of.scratch + of.layout.widened),
        begins_(of.begins),
        x_(of.scratch + of.layout.x + begin),
        sums_(of.scratch + of.layout.y) {
    const auto end = std::min(begin + static_cast<uint32_t>(Loop::width()), of.planes.places(piece));
    of.planes.each_run(piece, begin, end, [&](uint32_t place, uint32_t position, uint32_t count) {
      add_run(place - begin, position, count);
    });
  }

  void run() const {
    const uint32_t step = slice_.schedule.group_chunks;
    for (uint32_t first = slice_.chunk_begin; runs_ > 0 && first < slice_.chunk_end; first += step) {
      const uint32_t end = std::min(first + step, slice_.chunk_end);
      if (w_.k_blocks() == 1)
        for (uint32_t chunk = first; chunk < end; ++chunk) finish_chunk(chunk);
      else
        add_blocks(first, end);
    }
  }

 private:
  struct Run {
    uint32_t from, to, count;  // `to` is a column of Y
  };

  // Adds the part of a run that is in the slice's columns.
  void add_run(uint32_t from, uint32_t position, uint32_t count) {
    const uint32_t before = slice_.seen.first + slice_.col_begin, behind = slice_.seen.first + slice_.col_end;
    const uint32_t begin = std::clamp(before, position, position + count) - position;
    const uint32_t end = std::clamp(behind, position, position + count) - position;
    if (begin < end) run_[runs_++] = {from + begin, position + begin - slice_.seen.first, end - begin};
  }

  static size_t width() { return Loop::width(); }

  float* sums_of(uint32_t first, uint32_t chunk) const {
    return sums_ + (w_.chunk_begin[chunk] - w_.chunk_begin[first] + (chunk - first)) * width();
  }

  PlaneRows rows_of(uint32_t block) const { return {x_, begins_ + block * (w_.k_block + size_t{1})}; }

  void add_blocks(uint32_t first, uint32_t end) const {
    std::fill(sums_, sums_of(first, end), 0.0F);
    for (uint32_t block = 0; block < w_.k_blocks(); ++block)
      for (uint32_t chunk = first; chunk < end; ++chunk) {
        const typename Loop::Kept rows{sums_of(first, chunk)};
        groups_.each(chunk, block,
                     [&](const RowGroup& row_group, const float* values, const uint32_t* words)
                         HWY_ATTR { Loop::run(row_group, values, words, rows_of(block), rows); });
      }
    const float* sums = sums_;
    for (uint32_t chunk = first; chunk < end; ++chunk, sums += width())
      for (uint32_t row = w_.chunk_begin[chunk]; row < w_.chunk_begin[chunk + 1]; ++row, sums += width())
        write_row(row, sums);
  }

  void finish_chunk(uint32_t chunk) const {
    const Run& run = run_[0];
    const Epilogue& e = slice_.epilogue;
    const bool is_direct = runs_ == 1 && run.from == 0 && width() - run.count < kLanes && is_bounded_sum(e) &&
                           !streams() && (run.count == width() || e.beta == 0);
    finish_rows<Loop>(slice_, groups_, chunk, rows_of(0), {is_direct, run.to, width() - run.count}, sums_,
                      [&](uint32_t row, const float* sums) { write_row(row, sums); });
  }

  bool streams() const { return slice_.schedule.stream_y && slice_.epilogue.beta == 0; }

  void write_row(uint32_t row, const float* sums) const {
    const Epilogue& e = slice_.epilogue;
    for (uint32_t r = 0; r < runs_; ++r) {
      float* y = slice_.y.pointer_to(row, run_[r].to);
      if (is_plain(e) && !streams())
        copy_run(sums + run_[r].from, y, run_[r].count);
      else
        finish_lines(e, {sums + run_[r].from, 0, y, 0, 1, run_[r].count, bias_of(e, row),
                         /*are_rows=*/true, streams()});
    }
  }

  const ElementSlice& slice_;
  const ElementWeight& w_;
  RowGroups groups_;
  const uint32_t* begins_;
  const float* x_;
  float* sums_;
  uint32_t runs_ = 0;
  Run run_[kMaxTaskCols];  // neighbours in rows of Y
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
