#include "kernels/host/dense/codelet.h"

#include "kernels/host/dense/layout.h"

namespace tessera::kernels {

TESSERA_DEFINE_FAMILY(dense, TESSERA_DENSE_CODELETS, TESSERA_HOST_CODELET)

size_t panel_forward_scratch(uint32_t n, uint32_t k) { return DenseRowScratch(n, k, false).total; }
size_t panel_input_gradient_scratch(uint32_t n, uint32_t m) { return DenseRowScratch(n, m, true).total; }
size_t panel_weight_gradient_scratch(uint32_t n, uint32_t k, bool copies_x) {
  return DenseGradientScratch(n, k, copies_x).total;
}

}  // namespace tessera::kernels
