#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/host/spiking/codelet.h"
#include "kernels/host/spiking/layout.h"
#include "kernels/host/spiking/neurons.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/spiking/spiking.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/host/spiking/forward-inl.h"
#include "kernels/host/spiking/gradients-inl.h"
#include "kernels/host/spiking/neurons_forward-inl.h"
#include "kernels/host/spiking/neurons_gradients-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_spiking_forward(const program::Vertex& v) { spiking::SpikingForward(v).run(); }
void run_spiking_gradients(const program::Vertex& v) { spiking::SpikingGradients(v).run(); }
void run_neurons_forward(const program::Vertex& v) { spiking::NeuronsForward(v).run(); }
void run_neurons_gradients(const program::Vertex& v) { spiking::NeuronsGradients(v).run(); }
#else
TESSERA_SPIKING_CODELETS(TESSERA_RUN_REFERENCE)
TESSERA_NEURONS_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

// Panels without gaps, as wide as strips of neurons need.
bool suits_vectors(const program::Vertex& v, size_t weight) {
  const program::FieldView& panels = v.fields[weight];
  return has_vector_rows(v) && panels.row_stride == panels.cols && panels.cols % 16 == 0;
}

}  // namespace

TESSERA_SPIKING_CODELETS(TESSERA_EXPORT_RUN)
TESSERA_NEURONS_CODELETS(TESSERA_EXPORT_RUN)

void spiking_forward_simd(const program::Vertex& v) {
  using namespace spiking_forward_field;
  if (v.fields[in_num].empty() || v.fields[weight].empty() || !suits_vectors(v, weight))
    return spiking_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_spiking_forward)(v);
}

void spiking_gradients_simd(const program::Vertex& v) {
  using namespace spiking_gradients_field;
  const program::FieldView& gradients = v.fields[dweight];
  if (v.fields[in_num].empty() || v.fields[weight].empty() || !suits_vectors(v, weight) ||
      gradients.row_stride != gradients.cols)
    return spiking_gradients_reference(v);
  HWY_DYNAMIC_DISPATCH(run_spiking_gradients)(v);
}

void neurons_forward_simd(const program::Vertex& v) {
  if (v.fields[neurons_forward_field::dynamics].empty() || !has_vector_rows(v))
    return neurons_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_neurons_forward)(v);
}

void neurons_gradients_simd(const program::Vertex& v) {
  if (v.fields[neurons_gradients_field::dynamics].empty() || !has_vector_rows(v))
    return neurons_gradients_reference(v);
  HWY_DYNAMIC_DISPATCH(run_neurons_gradients)(v);
}

}  // namespace tessera::kernels
#endif
