#include "kernels/host/circulant/codelet.h"

#include "kernels/host/circulant/layout.h"

namespace tessera::kernels {

TESSERA_DEFINE_FAMILY(circulant, TESSERA_CIRCULANT_CODELETS, TESSERA_HOST_CODELET)

size_t circulant_forward_scratch(const CirculantShape& shape) {
  return CirculantScratch(CirculantEmbedding(shape).size, false).total;
}
size_t circulant_gradients_scratch(const CirculantShape& shape) {
  return CirculantScratch(CirculantEmbedding(shape).size, true).total;
}

}  // namespace tessera::kernels
