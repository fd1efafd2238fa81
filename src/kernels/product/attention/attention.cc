// Attention on vectors. Its bits depend only on the operands and the instruction set, not on how queries are
// partitioned in whole blocks.
#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/product/attention/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/product/attention/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/product/attention/forward-inl.h"
#include "kernels/product/attention/gradient-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_attention(const program::Vertex& v) { AttentionForward(v).run(); }
void run_attention_gradient(const program::Vertex& v) { AttentionGradient(v).run(); }
#else
TESSERA_ATTENTION_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_ATTENTION_CODELETS(TESSERA_DISPATCH_RUN)

}  // namespace tessera::kernels
#endif
