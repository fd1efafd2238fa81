// Dense products on vectors. Their bits depend only on the operands and the instruction set, not on how the
// product is partitioned.
#include <algorithm>

#include "base/simd.h"
#include "kernels/common/element.h"
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
void run_panel_forward(const program::Vertex& v) { PanelForward(v).run(); }
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
namespace {

// All fields but the scratch, which is the last one.
bool has_rows_in_place(const program::Vertex& v) {
  const auto fields = v.fields.first(v.fields.size() - 1);
  return std::ranges::all_of(
      fields, [](const program::FieldView& field) { return field.empty() || has_contiguous_rows(field); });
}

}  // namespace

TESSERA_DENSE_CODELETS(TESSERA_EXPORT_RUN)

void panel_forward_simd(const program::Vertex& v) {
  if (!has_rows_in_place(v)) return panel_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_panel_forward)(v);
}

void panel_input_gradient_simd(const program::Vertex& v) {
  if (!has_rows_in_place(v)) return panel_input_gradient_reference(v);
  HWY_DYNAMIC_DISPATCH(run_panel_input_gradient)(v);
}

void panel_weight_gradient_simd(const program::Vertex& v) {
  if (!has_rows_in_place(v)) return panel_weight_gradient_reference(v);
  HWY_DYNAMIC_DISPATCH(run_panel_weight_gradient)(v);
}

void panel_weight_gradient_add_simd(const program::Vertex& v) {
  if (!has_rows_in_place(v)) return panel_weight_gradient_add_reference(v);
  HWY_DYNAMIC_DISPATCH(run_panel_weight_gradient_add)(v);
}

}  // namespace tessera::kernels
#endif
