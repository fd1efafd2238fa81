#include "kernels/element_sparse/element_sparse.h"

#include "base/isa.h"
#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/element_sparse/element_sparse.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cuts.h"
#include "kernels/element_sparse/layout.h"

// One lane has nothing to vectorise: there the reference is the kernel.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TESSERA_ELEMENT_VECTORS 1
#include "kernels/element_sparse/share-inl.h"
#else
#define TESSERA_ELEMENT_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_ELEMENT_VECTORS

// Two rows of so many vectors, two broadcast values and a row of X fit the registers.
inline constexpr uint32_t kMostVectors = HWY_TARGET == HWY_AVX2 ? 6 : 8;

template <size_t kVectors>
void run_vectors(const ElementShare& share, uint32_t col, uint32_t cols) {
  if constexpr (kVectors > kMostVectors) {
    return;
  } else if (cols > kVectors * kLanes) {
    run_vectors<kVectors + 1>(share, col, cols);
  } else {
    PanelShare<TaskLoop<Floats, kVectors>>(share, col, cols).run();
  }
}

void run_single(const ElementShare& share, uint32_t col) {
#if HWY_TARGET == HWY_AVX3
  const uint32_t depth = share.weight.k_block + 1;
  if (depth <= 64) return PanelShare<ColumnLoop<LookedUp<4>>>(share, col, 1).run();
  if (depth <= 128) return PanelShare<ColumnLoop<LookedUp<8>>>(share, col, 1).run();
  if (depth <= 256) return PanelShare<ColumnLoop<Mixed>>(share, col, 1).run();
#endif
  PanelShare<ColumnLoop<Gathered>>(share, col, 1).run();
}

void run_panel(const ElementShare& share, uint32_t col, uint32_t cols) {
  if (cols == 1) return run_single(share, col);
  if (cols <= 4) return PanelShare<TaskLoop<hn::CappedTag<float, 4>, 1>>(share, col, cols).run();
  if (cols <= 8 && kLanes > 8)
    return PanelShare<TaskLoop<hn::CappedTag<float, 8>, 1>>(share, col, cols).run();
  run_vectors<1>(share, col, cols);
}

void run_share(const ElementShare& share) {
  const uint32_t cols = share.col_end - share.col_begin;
  const uint32_t most = std::min<uint32_t>(share.cut.panel_cols, kMostVectors * kLanes);
  if (most < kLanes) {
    for (uint32_t col = 0; col < cols; col += most)
      run_panel(share, share.col_begin + col, std::min(most, cols - col));
    return;
  }
  // Panels that differ by one vector at most.
  const TileCut panels{(cols + static_cast<uint32_t>(kLanes) - 1) / static_cast<uint32_t>(kLanes),
                       most / static_cast<uint32_t>(kLanes)};
  for (uint32_t p = 0; p < panels.tiles(); ++p) {
    const uint32_t begin = panels.begin(p) * kLanes;
    const uint32_t end = std::min<uint32_t>(cols, panels.begin(p + 1) * kLanes);
    run_panel(share, share.col_begin + begin, end - begin);
  }
}

#else

void run_share(const ElementShare& share) { element_spmm_reference(share); }

#endif
#undef TESSERA_ELEMENT_VECTORS

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(run_share);

void element_spmm(const ElementShare& share) { HWY_DYNAMIC_DISPATCH(run_share)(share); }

ElementWeight view_of(const sparse::ElementIndex& index, Type type, const void* values) {
  return {.rows = index.rows,
          .cols = index.cols,
          .k_block = index.k_block,
          .chunks = index.chunks(),
          .type = type,
          .values = values,
          .chunk_begin = index.chunk_begin.data(),
          .blocks = index.blocks.data(),
          .bundles = index.bundles.data(),
          .indices = index.words.data()};
}

ElementWeight view_of(const sparse::PackedElements& weight) {
  return view_of(weight.index(), weight.type(), weight.values());
}

size_t element_scratch_floats(const ElementCut& cut, const ElementWeight& weight, uint32_t cols) {
  return ElementScratch(cut, weight, cols).total;
}

}  // namespace tessera::kernels
#endif
