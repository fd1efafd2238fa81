#include "kernels/host/butterfly/codelet.h"

#include "kernels/host/butterfly/layout.h"

namespace tessera::kernels {

TESSERA_DEFINE_FAMILY(butterfly, TESSERA_BUTTERFLY_CODELETS, TESSERA_HOST_CODELET)

size_t butterfly_forward_scratch(const ButterflyShape& shape, uint32_t /*samples*/) {
  return ButterflyColumns(shape, kButterflyLanes).size(shape.n());
}

size_t butterfly_gradients_scratch(const ButterflyShape& shape, uint32_t samples) {
  const uint32_t lanes = butterfly_gradient_lanes(shape, samples);
  return butterfly_gradient_buffers(shape) * ButterflyColumns(shape, lanes).size(shape.n());
}

}  // namespace tessera::kernels
