#include "kernels/host/fastfood/codelet.h"

#include "kernels/host/fastfood/cost.h"
#include "kernels/host/fastfood/fastfood.h"
#include "kernels/host/fastfood/layout.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_FASTFOOD_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_FASTFOOD_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_FASTFOOD_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet fastfood_forward_codelet = {
    .name = "fastfood_forward",
    .workers = program::Workers::whole_tile,
    .fields = kForwardFields,
    .params = kParams,
    .reference = fastfood_forward_reference,
    .simd = fastfood_forward,
    .cost = fastfood_forward_cost,
    .code_bytes = 8192,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet fastfood_gradients_codelet = {
    .name = "fastfood_gradients",
    .workers = program::Workers::whole_tile,
    .fields = kGradientsFields,
    .params = kParams,
    .reference = fastfood_gradients_reference,
    .simd = fastfood_gradients,
    .cost = fastfood_gradients_cost,
    .code_bytes = 16384,
    .runs_on = program::RunsOn::hosts,
};

size_t fastfood_forward_scratch(uint32_t size) { return FastfoodScratch(size, false).total; }
size_t fastfood_gradients_scratch(uint32_t size) { return FastfoodScratch(size, true).total; }

std::span<const ListedCodelet> fastfood_codelets() {
  static constexpr ListedCodelet kListed[] = {fastfood_forward_codelet, fastfood_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
