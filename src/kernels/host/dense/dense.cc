// Dense products on vectors. Their bits depend only on the operands and the instruction set, not on how the
// product is partitioned.
#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/host/dense/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/dense/dense.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/host/dense/forward-inl.h"
#include "kernels/host/dense/input_gradient-inl.h"
#include "kernels/host/dense/weight_gradient-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_panel_forward(const program::Vertex& v) { PanelForward(v, false).run(); }
void run_panel_forward_add(const program::Vertex& v) { PanelForward(v, true).run(); }
void run_panel_input_gradient(const program::Vertex& v) { PanelInputGradient(v).run(); }
void run_panel_weight_gradient(const program::Vertex& v) { PanelWeightGradient(v, false).run(); }
void run_panel_weight_gradient_add(const program::Vertex& v) { PanelWeightGradient(v, true).run(); }
#else
TESSERA_DENSE_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_DENSE_CODELETS(TESSERA_DISPATCH_RUN)

}  // namespace tessera::kernels
#endif
