// Dense products on vectors. Their bits depend only on the operands and the instruction set, not on how the
// product is partitioned.
#include "base/simd.h"
#include "kernels/common/element.h"
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
#include "kernels/host/dense/winograd-inl.h"
#include "kernels/host/dense/winograd_gradient-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void forward(const program::Vertex& v, bool adds) {
#if HWY_TARGET == HWY_AVX3
  if (multiplies_bf16(v.fields[panel_forward_field::x], v.fields[panel_forward_field::w], active_isa()))
    return PanelForwardBf16(v, adds).run();
#endif
  if (const std::optional<Winograd> winograd = winograd_of_forward(v)) {
    using namespace panel_forward_field;
    return WinogradForward(v, v.fields[x], v.fields[w], *winograd, v.fields[scratch].as<float>(),
                           epilogue_of_forward(v, adds))
        .run(static_cast<uint32_t>(v.params[panel_forward_param::first_row]));
  }
  PanelForward(v, adds).run();
}

void run_panel_forward(const program::Vertex& v) { forward(v, false); }
void run_panel_forward_add(const program::Vertex& v) { forward(v, true); }

void input_gradient(const program::Vertex& v, bool adds) {
#if HWY_TARGET == HWY_AVX3
  if (multiplies_bf16(v.fields[panel_input_gradient_field::dy], v.fields[panel_input_gradient_field::w],
                      active_isa()))
    return PanelInputGradientBf16(v, adds).run();
#endif
  PanelInputGradient(v, adds).run();
}

void run_panel_input_gradient(const program::Vertex& v) { input_gradient(v, false); }
void run_panel_input_gradient_add(const program::Vertex& v) { input_gradient(v, true); }

void weight_gradient(const program::Vertex& v, bool adds) {
#if HWY_TARGET == HWY_AVX3
  if (!DenseGradientFactor(v).sees && multiplies_bf16(v.fields[panel_weight_gradient_field::dy],
                                                      v.fields[panel_weight_gradient_field::x], active_isa()))
    return PanelWeightGradientBf16(v, adds).run();
#endif
  if (const std::optional<Winograd> winograd = winograd_of_gradient(v))
    return WinogradWeightGradient(v, *winograd, adds).run();
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

TESSERA_DENSE_CODELETS(TESSERA_EXPORT_RUN)

namespace {

/// Whether vectors can take a matrix of activations.
bool takes(const program::FieldView& field) {
  return field.empty() || has_contiguous_rows(field) || field.type == Type::f32;
}
bool has_rows(const program::FieldView& field) { return field.empty() || has_contiguous_rows(field); }

// Without terms, the factors lack the size of the result, which vector kernels take from them.
bool takes_forward(const program::Vertex& v) {
  using namespace panel_forward_field;
  const bool is_matrix = v.fields[window].empty();
  return !v.fields[x].empty() && has_rows(v.fields[w]) && has_rows(v.fields[bias]) && takes(v.fields[y]) &&
         (is_matrix ? takes(v.fields[x]) : has_rows(v.fields[x]));
}
bool takes_input_gradient(const program::Vertex& v) {
  using namespace panel_input_gradient_field;
  const bool folds = !v.fields[window].empty();
  const auto is_f32 = [&](size_t field) {
    return v.fields[field].empty() || v.fields[field].type == Type::f32;
  };
  if (folds && !(is_f32(dy) && is_f32(relu) && is_f32(dx) && has_rows(v.fields[dx]))) return false;
  return has_rows(v.fields[w]) && has_rows(v.fields[bias]) && has_rows(v.fields[relu]) &&
         takes(v.fields[dy]) && takes(v.fields[dx]);
}
bool takes_weight_gradient(const program::Vertex& v) {
  using namespace panel_weight_gradient_field;
  const DenseGradientFactor factor(v);
  const DenseGradientScratch wanted(DenseGradientMethod(v), factor.cols, factor.sees);
  const bool takes_x = factor.sees ? has_rows(v.fields[x]) : takes(v.fields[x]);
  // Programs may have less scratch for other strides: Winograd's products need rows, and little scratch.
  const bool all_rows = has_rows(v.fields[x]) && has_rows(v.fields[dy]);
  return !v.fields[x].empty() && has_rows(v.fields[dw]) && takes_x && takes(v.fields[dy]) &&
         (all_rows || v.fields[scratch].cols >= wanted.total);
}

}  // namespace

#define TESSERA_DISPATCH_DENSE(codelet, takes)    \
  void codelet##_simd(const program::Vertex& v) { \
    if (!takes(v)) return codelet##_reference(v); \
    HWY_DYNAMIC_DISPATCH(run_##codelet)(v);       \
  }

TESSERA_DISPATCH_DENSE(panel_forward, takes_forward)
TESSERA_DISPATCH_DENSE(panel_forward_add, takes_forward)
TESSERA_DISPATCH_DENSE(panel_input_gradient, takes_input_gradient)
TESSERA_DISPATCH_DENSE(panel_input_gradient_add, takes_input_gradient)
TESSERA_DISPATCH_DENSE(panel_weight_gradient, takes_weight_gradient)
TESSERA_DISPATCH_DENSE(panel_weight_gradient_add, takes_weight_gradient)

}  // namespace tessera::kernels
#endif
