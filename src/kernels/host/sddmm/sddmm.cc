#include "kernels/host/sddmm/sddmm.h"

#include <algorithm>

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/sddmm/sddmm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/host/sddmm/layout.h"

#if TESSERA_HAS_VECTORS
#include "kernels/host/sddmm/block-inl.h"
#include "kernels/host/sddmm/element-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_blocks(const BlockSddmmSlice& slice) { run_block_sddmm(slice); }
void run_elements(const ElementSddmmSlice& slice) { run_element_sddmm(slice); }
#else
void run_blocks(const BlockSddmmSlice& slice) { block_sddmm_reference(slice); }
void run_elements(const ElementSddmmSlice& slice) { element_sddmm_reference(slice); }
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(run_blocks);
HWY_EXPORT(run_elements);

void block_sddmm(const BlockSddmmSlice& slice) { HWY_DYNAMIC_DISPATCH(run_blocks)(slice); }
void element_sddmm(const ElementSddmmSlice& slice) {
  HWY_DYNAMIC_DISPATCH(run_elements)(slice);
  clear_rest(slice);
}

void clear_rest(const ElementSddmmSlice& slice) {
  const ElementWeight& w = slice.weight;
  const uint64_t end = w.blocks[uint64_t{slice.chunk_end} * w.k_blocks()].value;
  if (end < slice.end_place) std::fill(slice.operands.dw + end, slice.operands.dw + slice.end_place, 0.0F);
}

size_t block_sddmm_scratch(const BlockSddmmSchedule& schedule, const BlockWeight& weight, uint32_t block_rows,
                           uint32_t n, const SddmmLayouts& layouts) {
  return BlockSddmmScratch(schedule, weight, block_rows, n, layouts).total;
}

size_t element_sddmm_scratch(const ElementSddmmSchedule& schedule, const ElementWeight& weight, uint32_t n,
                             const Seen& seen) {
  const size_t copied = ElementSddmmScratch(schedule, weight, n, nullptr).total;
  if (!seen) return copied;
  const Planes planes(seen);
  if (!planes.fit()) return copied;
  return std::max(copied, ElementSddmmScratch(schedule, weight, n, &planes).total);
}

}  // namespace tessera::kernels
#endif
