#include "kernels/sddmm/sddmm.h"

#include <algorithm>

#include "base/isa.h"
#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sddmm/sddmm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/sddmm/layout.h"

// One lane has nothing to vectorise: there the reference is the kernel.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TESSERA_SDDMM_VECTORS 1
#include "kernels/sddmm/block-inl.h"
#include "kernels/sddmm/element-inl.h"
#else
#define TESSERA_SDDMM_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_SDDMM_VECTORS
void run_blocks(const BlockSddmmShare& share) { run_block_sddmm(share); }
void run_elements(const ElementSddmmShare& share) { ElementSddmm(share).run(); }
#else
void run_blocks(const BlockSddmmShare& share) { block_sddmm_reference(share); }
void run_elements(const ElementSddmmShare& share) { element_sddmm_reference(share); }
#endif
#undef TESSERA_SDDMM_VECTORS

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(run_blocks);
HWY_EXPORT(run_elements);

void block_sddmm(const BlockSddmmShare& share) { HWY_DYNAMIC_DISPATCH(run_blocks)(share); }
void element_sddmm(const ElementSddmmShare& share) {
  HWY_DYNAMIC_DISPATCH(run_elements)(share);
  clear_rest(share);
}

void clear_rest(const ElementSddmmShare& share) {
  const ElementWeight& w = share.weight;
  const uint64_t end = w.blocks[uint64_t{share.chunk_end} * w.k_blocks()].value;
  if (end < share.end_place) std::fill(share.operands.dw + end, share.operands.dw + share.end_place, 0.0F);
}

size_t block_sddmm_scratch(const BlockSddmmCut& cut, const BlockWeight& weight, uint32_t block_rows,
                           uint32_t n, const SddmmLayouts& layouts) {
  return BlockSddmmScratch(cut, weight, block_rows, n, layouts).total;
}

size_t element_sddmm_scratch(const ElementSddmmCut& cut, const ElementWeight& weight, uint32_t n) {
  return ElementSddmmScratch(cut, weight, n).total;
}

}  // namespace tessera::kernels
#endif
