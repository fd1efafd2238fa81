#include "kernels/host/dense/dense.h"

#include <algorithm>

#include "base/simd.h"
#include "kernels/common/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/dense/dense.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// With one lane there is nothing to vectorise: the reference is the kernel.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TESSERA_DENSE_VECTORS 1
#include "kernels/host/dense/forward-inl.h"
#include "kernels/host/dense/input_gradient-inl.h"
#include "kernels/host/dense/weight_gradient-inl.h"
#else
#define TESSERA_DENSE_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_DENSE_VECTORS
void forward(const program::Vertex& v) { PanelForward(v).run(); }
void input_gradient(const program::Vertex& v) { PanelInputGradient(v).run(); }
void weight_gradient(const program::Vertex& v, bool adds) { PanelWeightGradient(v, adds).run(); }
#else
void forward(const program::Vertex& v) { panel_forward_reference(v); }
void input_gradient(const program::Vertex& v) { panel_input_gradient_reference(v); }
void weight_gradient(const program::Vertex& v, bool adds) { panel_weight_gradient_reference(v, adds); }
#endif
#undef TESSERA_DENSE_VECTORS

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

HWY_EXPORT(forward);
HWY_EXPORT(input_gradient);
HWY_EXPORT(weight_gradient);

void panel_forward(const program::Vertex& v) {
  if (!has_rows_in_place(v)) return panel_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(forward)(v);
}

void panel_input_gradient(const program::Vertex& v) {
  if (!has_rows_in_place(v)) return panel_input_gradient_reference(v);
  HWY_DYNAMIC_DISPATCH(input_gradient)(v);
}

void panel_weight_gradient(const program::Vertex& v, bool adds) {
  if (!has_rows_in_place(v)) return panel_weight_gradient_reference(v, adds);
  HWY_DYNAMIC_DISPATCH(weight_gradient)(v, adds);
}

}  // namespace tessera::kernels
#endif
