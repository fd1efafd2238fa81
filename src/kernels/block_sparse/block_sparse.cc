#include "kernels/block_sparse/block_sparse.h"

#include "base/isa.h"
#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_sparse/block_sparse.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// One lane has nothing to vectorise: there the reference is the kernel.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TESSERA_BLOCK_VECTORS 1
#include "kernels/block_sparse/narrow-inl.h"
#include "kernels/block_sparse/wide-inl.h"
#else
#define TESSERA_BLOCK_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_BLOCK_VECTORS

template <class T, class Index>
void run_narrow(const BlockShare& share) {
  share.weight.transposed ? NarrowShare<T, Index, true>(share).run()
                          : NarrowShare<T, Index, false>(share).run();
}

template <class T>
void run_typed(const BlockShare& share) {
  if (share.cut.kernel == BlockCut::Kernel::wide) {
    share.weight.transposed ? WideShare<T, true>(share).run() : WideShare<T, false>(share).run();
  } else if (share.weight.column_type == Type::u16) {
    run_narrow<T, uint16_t>(share);
  } else {
    run_narrow<T, uint32_t>(share);
  }
}

void run_share(const BlockShare& share) {
  switch (share.weight.type) {
    case Type::f16: return run_typed<hwy::float16_t>(share);
    case Type::bf16: return run_typed<hwy::bfloat16_t>(share);
    default: return run_typed<float>(share);
  }
}

#else

void run_share(const BlockShare& share) { block_spmm_reference(share); }

#endif
#undef TESSERA_BLOCK_VECTORS

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(run_share);

void block_spmm(const BlockShare& share) { HWY_DYNAMIC_DISPATCH(run_share)(share); }

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

size_t block_scratch_floats(const BlockCut& cut, uint32_t k, uint32_t block_size, uint32_t cols,
                            bool transposed) {
  if (cut.kernel == BlockCut::Kernel::wide) return WideScratch(cut, k, block_size, cols).total;
  return NarrowScratch(k, block_size, cols, transposed).total;
}

}  // namespace tessera::kernels
#endif
