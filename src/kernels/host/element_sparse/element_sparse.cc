#include "kernels/host/element_sparse/element_sparse.h"

#include "base/isa.h"
#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/element_sparse/element_sparse.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/splits.h"
#include "kernels/host/element_sparse/layout.h"

// With one lane there is nothing to vectorise: the reference is the kernel.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TESSERA_ELEMENT_VECTORS 1
#include "kernels/host/element_sparse/slice-inl.h"
#else
#define TESSERA_ELEMENT_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_ELEMENT_VECTORS

// Two rows of this many vectors, two broadcast values and a row of X fit the registers.
inline constexpr uint32_t kMostVectors = HWY_TARGET == HWY_AVX2 ? 6 : 8;

template <size_t kVectors>
void run_vectors(const ElementSlice& slice, uint32_t col, uint32_t cols) {
  if constexpr (kVectors > kMostVectors) {
    return;
  } else if (cols > kVectors * kLanes) {
    run_vectors<kVectors + 1>(slice, col, cols);
  } else {
    PanelSlice<TaskLoop<Floats, kVectors>>(slice, col, cols).run();
  }
}

void run_single(const ElementSlice& slice, uint32_t col) {
#if HWY_TARGET == HWY_AVX3
  const uint32_t depth = slice.weight.k_block + 1;
  if (depth <= 64) return PanelSlice<ColumnLoop<LookedUp<4>>>(slice, col, 1).run();
  if (depth <= 128) return PanelSlice<ColumnLoop<LookedUp<8>>>(slice, col, 1).run();
  if (depth <= 256) return PanelSlice<ColumnLoop<Mixed>>(slice, col, 1).run();
#endif
  PanelSlice<ColumnLoop<Gathered>>(slice, col, 1).run();
}

void run_panel(const ElementSlice& slice, uint32_t col, uint32_t cols) {
  if (cols == 1) return run_single(slice, col);
  if (cols <= 4) return PanelSlice<TaskLoop<hn::CappedTag<float, 4>, 1>>(slice, col, cols).run();
  if (cols <= 8 && kLanes > 8)
    return PanelSlice<TaskLoop<hn::CappedTag<float, 8>, 1>>(slice, col, cols).run();
  run_vectors<1>(slice, col, cols);
}

void run_slice(const ElementSlice& slice) {
  const uint32_t cols = slice.col_end - slice.col_begin;
  const uint32_t most = std::min<uint32_t>(slice.schedule.panel_cols, kMostVectors * kLanes);
  if (most < kLanes) {
    for (uint32_t col = 0; col < cols; col += most)
      run_panel(slice, slice.col_begin + col, std::min(most, cols - col));
    return;
  }
  // Panels that differ by one vector at most.
  const TileSplit panels{(cols + static_cast<uint32_t>(kLanes) - 1) / static_cast<uint32_t>(kLanes),
                         most / static_cast<uint32_t>(kLanes)};
  for (uint32_t p = 0; p < panels.tiles(); ++p) {
    const uint32_t begin = panels.begin(p) * kLanes;
    const uint32_t end = std::min<uint32_t>(cols, panels.begin(p + 1) * kLanes);
    run_panel(slice, slice.col_begin + begin, end - begin);
  }
}

#else

void run_slice(const ElementSlice& slice) { element_spmm_reference(slice); }

#endif
#undef TESSERA_ELEMENT_VECTORS

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

size_t element_scratch_floats(const ElementSchedule& schedule, const ElementWeight& weight, uint32_t cols) {
  return ElementScratch(schedule, weight, cols).total;
}

}  // namespace tessera::kernels
#endif
