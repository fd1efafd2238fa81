#include "base/simd.h"
#include "kernels/host/fastfood/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/fastfood/fastfood.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/host/fastfood/vertex-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_fastfood_forward(const program::Vertex& v) { fastfood::FastfoodForward(v).run(); }
void run_fastfood_gradients(const program::Vertex& v) { fastfood::FastfoodGradients(v).run(); }
#else
TESSERA_FASTFOOD_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_FASTFOOD_CODELETS(TESSERA_EXPORT_RUN)

// Without samples or features the reference writes what is left to write.
void fastfood_forward_simd(const program::Vertex& v) {
  using namespace fastfood_forward_field;
  if (v.fields[x].empty() || v.fields[y].empty()) return fastfood_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_fastfood_forward)(v);
}

void fastfood_gradients_simd(const program::Vertex& v) {
  using namespace fastfood_gradients_field;
  if (v.fields[dy].empty() || v.fields[x].empty()) return fastfood_gradients_reference(v);
  HWY_DYNAMIC_DISPATCH(run_fastfood_gradients)(v);
}

}  // namespace tessera::kernels
#endif
