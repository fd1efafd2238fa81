#include "kernels/host/spiking/neurons.h"

#include <algorithm>

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/spiking/neurons.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/host/spiking/neurons_forward-inl.h"
#include "kernels/host/spiking/neurons_gradients-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_neurons_forward(const program::Vertex& v) { spiking::NeuronsForward(v).run(); }
void run_neurons_gradients(const program::Vertex& v) { spiking::NeuronsGradients(v).run(); }
#else
TESSERA_NEURONS_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

bool suits_vectors(const program::Vertex& v, const program::FieldView& dynamics) {
  return !dynamics.empty() && std::ranges::all_of(v.fields, [](const program::FieldView& f) {
    return f.empty() || has_contiguous_rows(f);
  });
}

}  // namespace

TESSERA_NEURONS_CODELETS(TESSERA_EXPORT_RUN)

void neurons_forward_simd(const program::Vertex& v) {
  if (!suits_vectors(v, v.fields[neurons_forward_field::dynamics])) return neurons_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_neurons_forward)(v);
}

void neurons_gradients_simd(const program::Vertex& v) {
  if (!suits_vectors(v, v.fields[neurons_gradients_field::dynamics])) return neurons_gradients_reference(v);
  HWY_DYNAMIC_DISPATCH(run_neurons_gradients)(v);
}

}  // namespace tessera::kernels
#endif
