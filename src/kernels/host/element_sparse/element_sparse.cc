#include "kernels/host/element_sparse/element_sparse.h"

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/element_sparse/element_sparse.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/splits.h"
#include "kernels/host/element_sparse/layout.h"

#if TESSERA_HAS_VECTORS
#include "kernels/host/element_sparse/planes-inl.h"
#include "kernels/host/element_sparse/slice-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS

// Two rows of this many vectors, two broadcast values and a row of X fit the registers.
inline constexpr uint32_t kMostVectors = HWY_TARGET == HWY_AVX2 ? 6 : 8;

template <size_t kVectors>
void run_vectors(const ElementSlice& slice, uint32_t col, uint32_t cols, float* scratch) {
  if constexpr (kVectors > kMostVectors) {
    return;
  } else if (cols > kVectors * kLanes) {
    run_vectors<kVectors + 1>(slice, col, cols, scratch);
  } else {
    PanelSlice<TaskLoop<Floats, kVectors>>(slice, col, cols, scratch).run();
  }
}

template <size_t kVectors>
void run_by_rows(const ElementSlice& slice, uint32_t col, uint32_t cols, float* scratch) {
  if constexpr (kVectors * kLanes <= kMaxPanelCols) {
    if (cols > kVectors * kLanes) return run_by_rows<kVectors + 1>(slice, col, cols, scratch);
    PanelSlice<RowLoop<Floats, kVectors>>(slice, col, cols, scratch).run();
  }
}

void run_single(const ElementSlice& slice, uint32_t col, float* scratch) {
#if HWY_TARGET == HWY_AVX3
  const uint32_t depth = slice.weight.k_block + 1;
  if (depth <= 64) return PanelSlice<ColumnLoop<LookedUp<4>>>(slice, col, 1, scratch).run();
  if (depth <= 128) return PanelSlice<ColumnLoop<LookedUp<8>>>(slice, col, 1, scratch).run();
  if (depth <= 256) return PanelSlice<ColumnLoop<Mixed>>(slice, col, 1, scratch).run();
#endif
  PanelSlice<ColumnLoop<Gathered>>(slice, col, 1, scratch).run();
}

void run_panel(const ElementSlice& slice, uint32_t col, uint32_t cols, float* scratch) {
  if (cols == 1) return run_single(slice, col, scratch);
  if (cols <= 4) return PanelSlice<TaskLoop<hn::CappedTag<float, 4>, 1>>(slice, col, cols, scratch).run();
  if (cols <= 8 && kLanes > 8)
    return PanelSlice<TaskLoop<hn::CappedTag<float, 8>, 1>>(slice, col, cols, scratch).run();
  if constexpr (kLanes == 16) {
    if (runs_by_rows(slice, kLanes)) return run_by_rows<1>(slice, col, cols, scratch);
  }
  run_vectors<1>(slice, col, cols, scratch);
}

// Threads share the chunks of a panel that is kept, otherwise whole panels.
template <class PanelColumns>
void run_panels(const ElementSlice& slice, uint32_t panels, const PanelColumns& columns_before) {
  const auto run = [&](uint32_t i, float* scratch) {
    run_panel(slice, slice.col_begin + columns_before(i), columns_before(i + 1) - columns_before(i), scratch);
  };
  if (keeps_panel(slice.schedule, slice.chunk_end - slice.chunk_begin)) {
    for (uint32_t i = 0; i < panels; ++i) run(i, slice.scratch);
    return;
  }
  program::share_work(slice.helpers, panels, slice.scratch,
                      [&](uint32_t i, std::byte* scratch) { run(i, reinterpret_cast<float*>(scratch)); });
}

template <size_t kVectors>
void run_places(const PlaneSlice& slice, const Planes::Piece& piece, uint32_t begin, size_t vectors) {
  if constexpr (kVectors <= kMostVectors) {
    if (vectors > kVectors) return run_places<kVectors + 1>(slice, piece, begin, vectors);
    PlanePanel<TaskLoop<Floats, kVectors>>(slice, piece, begin).run();
  }
}

void run_piece(const PlaneSlice& of, const Planes::Piece& piece) {
  program::PhaseClock* const clock = of.scratch == of.slice.scratch ? of.slice.clock : nullptr;
  program::enter(clock, program::Phase::rearrange);
  copy_planes(of.slice.x, of.planes, piece, of.scratch + of.layout.x);
  program::enter(clock, program::Phase::compute);
  constexpr auto kStep = static_cast<uint32_t>(kLanes);
  const uint32_t most = std::min(plane_cols(of.slice.schedule) / kStep, kMostVectors);
  const TileSplit panels{(of.planes.places(piece) + kStep - 1) / kStep, most};
  for (uint32_t i = 0; i < panels.tiles(); ++i)
    run_places<1>(of, piece, panels.begin(i) * kStep, panels.begin(i + 1) - panels.begin(i));
}

// Threads share pieces of planes.
void run_on_planes(const ElementSlice& slice) {
  const Planes planes(slice.seen);
  const ElementScratch layout = scratch_of(slice);
  auto* const begins = reinterpret_cast<uint32_t*>(slice.scratch + layout.begins);
  planes.find_begins(slice.weight.cols, slice.weight.k_block, begins);
  const Span pieces = planes.pieces_of(slice.col_begin, slice.col_end);
  program::share_work(slice.helpers, pieces.size(), slice.scratch, [&](uint32_t i, std::byte* scratch) {
    run_piece({slice, planes, begins, layout, reinterpret_cast<float*>(scratch)},
              planes.piece(pieces.begin + i));
  });
}

void run_slice(const ElementSlice& slice) {
  if (uses_planes(slice)) return run_on_planes(slice);
  const uint32_t cols = slice.col_end - slice.col_begin;
  const uint32_t widest =
      runs_by_rows(slice, kLanes) ? kMaxPanelCols : static_cast<uint32_t>(kMostVectors * kLanes);
  const uint32_t most = std::min<uint32_t>(slice.schedule.panel_cols, widest);
  if (most < kLanes)
    return run_panels(slice, (cols + most - 1) / most, [&](uint32_t i) { return std::min(cols, i * most); });
  // Panels whose widths differ by at most one vector.
  const TileSplit panels{(cols + static_cast<uint32_t>(kLanes) - 1) / static_cast<uint32_t>(kLanes),
                         most / static_cast<uint32_t>(kLanes)};
  run_panels(slice, panels.tiles(), [&](uint32_t i) {
    return std::min<uint32_t>(cols, panels.begin(i) * static_cast<uint32_t>(kLanes));
  });
}

#else

void run_slice(const ElementSlice& slice) { element_spmm_reference(slice); }

#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(run_slice);

void element_spmm(const ElementSlice& slice) { HWY_DYNAMIC_DISPATCH(run_slice)(slice); }

ElementWeight view_of(const sparse::ElementIndex& index, Type type, const void* values) {
  return {.rows = index.rows,
          .cols = index.cols,
          .k_block = index.k_block,
          .chunks = index.chunks(),
          .type = type,
          .values = values,
          .chunk_begin = index.chunk_begin.data(),
          .blocks = index.blocks.data(),
          .row_groups = index.row_groups.data(),
          .indices = index.words.data()};
}

ElementWeight view_of(const sparse::PackedElements& weight) {
  return view_of(weight.index(), weight.type(), weight.values());
}

size_t element_scratch_floats(const ElementSchedule& schedule, const ElementWeight& weight, uint32_t cols,
                              const Seen& seen) {
  return ElementScratch(schedule, weight, cols, seen).total;
}

}  // namespace tessera::kernels
#endif
