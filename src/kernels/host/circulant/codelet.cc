#include "kernels/host/circulant/codelet.h"

#include "kernels/host/circulant/circulant.h"
#include "kernels/host/circulant/cost.h"
#include "kernels/host/circulant/layout.h"
#include "kernels/host/host_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_CIRCULANT_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_CIRCULANT_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_CIRCULANT_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet circulant_forward_codelet =
    host_codelet("circulant_forward", kForwardFields, kParams, circulant_forward_reference, circulant_forward,
                 circulant_forward_cost, 8192);

constexpr program::Codelet circulant_gradients_codelet =
    host_codelet("circulant_gradients", kGradientsFields, kParams, circulant_gradients_reference,
                 circulant_gradients, circulant_gradients_cost, 16384);

size_t circulant_forward_scratch(const CirculantShape& shape) {
  return CirculantScratch(CirculantEmbedding(shape).size, false).total;
}
size_t circulant_gradients_scratch(const CirculantShape& shape) {
  return CirculantScratch(CirculantEmbedding(shape).size, true).total;
}

std::span<const ListedCodelet> circulant_codelets() {
  static constexpr ListedCodelet kListed[] = {circulant_forward_codelet, circulant_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
