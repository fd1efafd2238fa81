#include "kernels/host/kronecker/codelet.h"

#include "kernels/host/kronecker/layout.h"

namespace tessera::kernels {

TESSERA_DEFINE_FAMILY(kronecker, TESSERA_KRONECKER_CODELETS, TESSERA_HOST_CODELET)

size_t kronecker_forward_scratch(const KroneckerFactor& factor) {
  return KroneckerColumns(factor).forward_total;
}
size_t kronecker_gradients_scratch(const KroneckerFactor& factor) { return KroneckerColumns(factor).total; }

}  // namespace tessera::kernels
