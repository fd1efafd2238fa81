#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/host/butterfly/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/butterfly/butterfly.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/host/butterfly/forward-inl.h"
#include "kernels/host/butterfly/gradients-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_butterfly_forward(const program::Vertex& v) { ButterflyForward(v, butterfly_shape(v)).run(); }
void run_butterfly_gradients(const program::Vertex& v) { ButterflyGradients(v, butterfly_shape(v)).run(); }
#else
TESSERA_BUTTERFLY_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_BUTTERFLY_CODELETS(TESSERA_EXPORT_RUN)

ButterflyShape butterfly_shape(const program::Vertex& v) {
  using namespace butterfly_param;
  const auto number = [&](size_t param) { return static_cast<uint32_t>(v.params[param]); };
  return {.transposed = number(transposed) != 0,
          .stacks = number(stacks),
          .blocks = number(blocks),
          .log_n = number(log_n),
          .tied = number(tied) != 0,
          .complex = number(complex) != 0,
          .decreasing = number(decreasing) != 0};
}

void butterfly_forward_simd(const program::Vertex& v) {
  if (!has_contiguous_rows(v.fields[butterfly_forward_field::twiddle])) return butterfly_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_butterfly_forward)(v);
}

void butterfly_gradients_simd(const program::Vertex& v) {
  using namespace butterfly_gradients_field;
  const program::FieldView &values = v.fields[twiddle], &sums = v.fields[dtwiddle];
  const bool same_order = sums.empty() || sums.row_stride == values.row_stride;
  if (!same_order || !has_contiguous_rows(values) || !has_contiguous_rows(sums))
    return butterfly_gradients_reference(v);
  HWY_DYNAMIC_DISPATCH(run_butterfly_gradients)(v);
}

}  // namespace tessera::kernels
#endif
