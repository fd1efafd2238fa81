#include "base/simd.h"
#include "kernels/host/circulant/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/circulant/circulant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/host/circulant/vertex-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

#if TESSERA_HAS_VECTORS
void run_circulant_forward(const program::Vertex& v) {
  using namespace circulant_forward_field;
  const auto f = v.fields;
  fourier::CirculantVertex(v, f[x], f[y], f[c], f[scratch].as<float>(), false).forward(f[x], f[c], f[y]);
}
void run_circulant_gradients(const program::Vertex& v) {
  using namespace circulant_gradients_field;
  const auto f = v.fields;
  const fourier::CirculantVertex vertex(v, f[dx].empty() ? f[x] : f[dx], f[dy], f[c], f[scratch].as<float>(),
                                        true);
  if (f[dc].empty()) return vertex.input_gradient(f[dy], f[c], f[dx]);
  vertex.gradients(f[x], f[dy], f[c], f[dx], f[dc]);
}
#else
TESSERA_CIRCULANT_CODELETS(TESSERA_RUN_REFERENCE)
#endif

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_CIRCULANT_CODELETS(TESSERA_EXPORT_RUN)

// Without samples or features, or with nothing to compute, the reference writes what is left to write.
void circulant_forward_simd(const program::Vertex& v) {
  using namespace circulant_forward_field;
  if (v.fields[x].empty() || v.fields[y].empty()) return circulant_forward_reference(v);
  HWY_DYNAMIC_DISPATCH(run_circulant_forward)(v);
}

void circulant_gradients_simd(const program::Vertex& v) {
  using namespace circulant_gradients_field;
  const bool has_inputs = !v.fields[dy].empty() && (v.fields[dc].empty() || !v.fields[x].empty());
  const bool has_results = !v.fields[dx].empty() || !v.fields[dc].empty();
  if (!has_inputs || !has_results) return circulant_gradients_reference(v);
  HWY_DYNAMIC_DISPATCH(run_circulant_gradients)(v);
}

}  // namespace tessera::kernels
#endif
