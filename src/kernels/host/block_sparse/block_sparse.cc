#include "kernels/host/block_sparse/block_sparse.h"

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/block_sparse/block_sparse.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/host/block_sparse/bf16-inl.h"
#include "kernels/host/block_sparse/few_columns-inl.h"
#include "kernels/host/block_sparse/wide-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS

template <class T, class Index>
void run_few_columns(const BlockSlice& slice) {
  slice.weight.transposed ? FewColumnSlice<T, Index, true>(slice).run()
                          : FewColumnSlice<T, Index, false>(slice).run();
}

template <class T>
void run_typed(const BlockSlice& slice) {
  if (slice.schedule.kernel == BlockSchedule::Kernel::wide) {
    slice.weight.transposed ? WideSlice<T, true>(slice).run() : WideSlice<T, false>(slice).run();
  } else if (slice.weight.column_type == Type::u16) {
    run_few_columns<T, uint16_t>(slice);
  } else {
    run_few_columns<T, uint32_t>(slice);
  }
}

void run_slice(const BlockSlice& slice) {
  if (slice.schedule.kernel == BlockSchedule::Kernel::bf16) {
#if HWY_TARGET == HWY_AVX3
    if (has_bf16_products()) return Bf16Slice(slice).run();
#endif
    return block_spmm_reference(slice);
  }
  switch (slice.weight.type) {
    case Type::f16: return run_typed<hwy::float16_t>(slice);
    case Type::bf16: return run_typed<hwy::bfloat16_t>(slice);
    default: return run_typed<float>(slice);
  }
}

#else

void run_slice(const BlockSlice& slice) { block_spmm_reference(slice); }

#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(run_slice);

void block_spmm(const BlockSlice& slice) { HWY_DYNAMIC_DISPATCH(run_slice)(slice); }

BlockWeight view_of(const sparse::PackedBlocks& weight, bool transposed) {
  const sparse::BlockIndex& index = transposed ? weight.transposed_index() : weight.index();
  BlockWeight view;
  view.rows = transposed ? weight.cols() : weight.rows();
  view.cols = transposed ? weight.rows() : weight.cols();
  view.block_size = weight.block_size();
  view.type = weight.type();
  view.column_type = index.column_type;
  view.values = weight.values().data();
  view.row_begin = index.row_begin.data();
  view.columns = index.columns.data();
  view.slots = index.slots.empty() ? nullptr : index.slots.data();
  view.transposed = transposed;
  return view;
}

size_t block_scratch_floats(const BlockSchedule& schedule, uint32_t k, uint32_t block_size, uint32_t cols,
                            bool transposed) {
  if (schedule.kernel == BlockSchedule::Kernel::bf16) return Bf16BlockScratch(k, block_size, cols).total;
  if (schedule.kernel == BlockSchedule::Kernel::wide) return WideScratch(schedule, k, block_size, cols).total;
  return FewColumnScratch(k, block_size, cols, transposed).total;
}

}  // namespace tessera::kernels
#endif
