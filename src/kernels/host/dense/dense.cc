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
#include "kernels/host/dense/bf16_forward-inl.h"
#include "kernels/host/dense/bf16_input_gradient-inl.h"
#include "kernels/host/dense/bf16_weight_gradient-inl.h"
#include "kernels/host/dense/forward-inl.h"
#include "kernels/host/dense/input_gradient-inl.h"
#include "kernels/host/dense/weight_gradient-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void forward(const program::Vertex& v, bool adds) {
#if HWY_TARGET == HWY_AVX3
  if (multiplies_bf16(v.fields[panel_forward_field::x], v.fields[panel_forward_field::w]))
    return PanelForwardBf16(v, adds).run();
#endif
  PanelForward(v, adds).run();
}

void run_panel_forward(const program::Vertex& v) { forward(v, false); }
void run_panel_forward_add(const program::Vertex& v) { forward(v, true); }
void run_panel_input_gradient(const program::Vertex& v) {
#if HWY_TARGET == HWY_AVX3
  if (multiplies_bf16(v.fields[panel_input_gradient_field::dy], v.fields[panel_input_gradient_field::w]))
    return PanelInputGradientBf16(v).run();
#endif
  PanelInputGradient(v).run();
}

void weight_gradient(const program::Vertex& v, bool adds) {
#if HWY_TARGET == HWY_AVX3
  if (multiplies_bf16(v.fields[panel_weight_gradient_field::dy], v.fields[panel_weight_gradient_field::x]))
    return PanelWeightGradientBf16(v, adds).run();
#endif
  PanelWeightGradient(v, adds).run();
}

void run_panel_weight_gradient(const program::Vertex& v) { weight_gradient(v, false); }
void run_panel_weight_gradient_add(const program::Vertex& v) { weight_gradient(v, true); }
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
