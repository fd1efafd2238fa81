#include "kernels/host/spiking/neurons.h"

#include <algorithm>

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/spiking/neurons.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// With one lane there is nothing to vectorise: the reference is the kernel.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TESSERA_NEURONS_VECTORS 1
#include "kernels/host/spiking/neurons_forward-inl.h"
#include "kernels/host/spiking/neurons_gradients-inl.h"
#else
#define TESSERA_NEURONS_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_NEURONS_VECTORS
void run_neurons_forward(const program::Vertex& v) { spiking::NeuronsForward(v).run(); }
void run_neurons_gradients(const program::Vertex& v) { spiking::NeuronsGradients(v).run(); }
#else
void run_neurons_forward(const program::Vertex& v) { neurons_forward_reference(v); }
void run_neurons_gradients(const program::Vertex& v) { neurons_gradients_reference(v); }
#endif
#undef TESSERA_NEURONS_VECTORS

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

HWY_EXPORT(run_neurons_forward);
HWY_EXPORT(run_neurons_gradients);

void neurons_forward(const program::Vertex& v) {
  if (!suits_vectors(v, v.fields[neurons_forward_field::dynamics])) return neurons_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_neurons_forward)(v);
}

void neurons_gradients(const program::Vertex& v) {
  if (!suits_vectors(v, v.fields[neurons_gradients_field::dynamics])) return neurons_gradients_reference(v);
  HWY_DYNAMIC_DISPATCH(run_neurons_gradients)(v);
}

}  // namespace tessera::kernels
#endif
