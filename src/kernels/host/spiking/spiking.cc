#include "kernels/host/spiking/spiking.h"

#include <algorithm>

#include "base/simd.h"
#include "kernels/host/spiking/codelet.h"
#include "kernels/host/spiking/layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/spiking/spiking.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// With one lane there is nothing to vectorise: the reference is the kernel.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TESSERA_SPIKING_VECTORS 1
#include "kernels/host/spiking/forward-inl.h"
#include "kernels/host/spiking/gradients-inl.h"
#else
#define TESSERA_SPIKING_VECTORS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_SPIKING_VECTORS
void run_spiking_forward(const program::Vertex& v) { spiking::SpikingForward(v).run(); }
void run_spiking_gradients(const program::Vertex& v) { spiking::SpikingGradients(v).run(); }
#else
void run_spiking_forward(const program::Vertex& v) { spiking_forward_reference(v); }
void run_spiking_gradients(const program::Vertex& v) { spiking_gradients_reference(v); }
#endif
#undef TESSERA_SPIKING_VECTORS

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

// Rows of elements side by side; panels without gaps, as wide as strips of neurons need.
bool suits_vectors(const program::Vertex& v, size_t weight) {
  const bool rows = std::ranges::all_of(
      v.fields, [](const program::FieldView& f) { return f.empty() || has_contiguous_rows(f); });
  const program::FieldView& panels = v.fields[weight];
  return rows && panels.row_stride == panels.cols && panels.cols % 16 == 0;
}

}  // namespace

HWY_EXPORT(run_spiking_forward);
HWY_EXPORT(run_spiking_gradients);

void spiking_forward(const program::Vertex& v) {
  using namespace spiking_forward_field;
  if (v.fields[in_num].empty() || v.fields[weight].empty() || !suits_vectors(v, weight))
    return spiking_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_spiking_forward)(v);
}

void spiking_gradients(const program::Vertex& v) {
  using namespace spiking_gradients_field;
  const program::FieldView& gradients = v.fields[dweight];
  if (v.fields[in_num].empty() || v.fields[weight].empty() || !suits_vectors(v, weight) ||
      gradients.row_stride != gradients.cols)
    return spiking_gradients_reference(v);
  HWY_DYNAMIC_DISPATCH(run_spiking_gradients)(v);
}

}  // namespace tessera::kernels
#endif
