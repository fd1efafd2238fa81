#include "kernels/host/kronecker/codelet.h"

#include "kernels/host/host_codelet.h"
#include "kernels/host/kronecker/cost.h"
#include "kernels/host/kronecker/kronecker.h"
#include "kernels/host/kronecker/layout.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_KRONECKER_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_KRONECKER_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_KRONECKER_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet kronecker_forward_codelet =
    host_codelet("kronecker_forward", kForwardFields, kParams, kronecker_forward_reference, kronecker_forward,
                 kronecker_forward_cost, 4096);

constexpr program::Codelet kronecker_gradients_codelet =
    host_codelet("kronecker_gradients", kGradientsFields, kParams, kronecker_gradients_reference,
                 kronecker_gradients, kronecker_gradients_cost, 4096);

size_t kronecker_forward_scratch(const KroneckerFactor& factor) {
  return KroneckerColumns(factor).forward_total;
}
size_t kronecker_gradients_scratch(const KroneckerFactor& factor) { return KroneckerColumns(factor).total; }

std::span<const ListedCodelet> kronecker_codelets() {
  static constexpr ListedCodelet kListed[] = {kronecker_forward_codelet, kronecker_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
