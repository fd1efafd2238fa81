#include "kernels/host/fastfood/codelet.h"

#include "kernels/host/fastfood/layout.h"

namespace tessera::kernels {

TESSERA_DEFINE_FAMILY(fastfood, TESSERA_FASTFOOD_CODELETS, TESSERA_HOST_CODELET)

size_t fastfood_forward_scratch(uint32_t size) { return FastfoodScratch(size, false).total; }
size_t fastfood_gradients_scratch(uint32_t size) { return FastfoodScratch(size, true).total; }

}  // namespace tessera::kernels
