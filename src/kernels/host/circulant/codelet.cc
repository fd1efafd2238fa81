#include "kernels/host/circulant/codelet.h"

#include "kernels/host/circulant/circulant.h"
#include "kernels/host/circulant/cost.h"
#include "kernels/host/circulant/layout.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_CIRCULANT_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_CIRCULANT_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_CIRCULANT_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet circulant_forward_codelet = {
    .name = "circulant_forward",
    .workers = program::Workers::whole_tile,
    .fields = kForwardFields,
    .params = kParams,
    .reference = circulant_forward_reference,
    .simd = circulant_forward,
    .cost = circulant_forward_cost,
    .code_bytes = 8192,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet circulant_gradients_codelet = {
    .name = "circulant_gradients",
    .workers = program::Workers::whole_tile,
    .fields = kGradientsFields,
    .params = kParams,
    .reference = circulant_gradients_reference,
    .simd = circulant_gradients,
    .cost = circulant_gradients_cost,
    .code_bytes = 16384,
    .runs_on = program::RunsOn::hosts,
};

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
