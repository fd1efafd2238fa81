#include "kernels/host/fastfood/codelet.h"

#include "kernels/host/fastfood/cost.h"
#include "kernels/host/fastfood/fastfood.h"
#include "kernels/host/fastfood/layout.h"
#include "kernels/host/host_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_FASTFOOD_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_FASTFOOD_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_FASTFOOD_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet fastfood_forward_codelet =
    host_codelet("fastfood_forward", kForwardFields, kParams, fastfood_forward_reference, fastfood_forward,
                 fastfood_forward_cost, 8192);

constexpr program::Codelet fastfood_gradients_codelet =
    host_codelet("fastfood_gradients", kGradientsFields, kParams, fastfood_gradients_reference,
                 fastfood_gradients, fastfood_gradients_cost, 16384);

size_t fastfood_forward_scratch(uint32_t size) { return FastfoodScratch(size, false).total; }
size_t fastfood_gradients_scratch(uint32_t size) { return FastfoodScratch(size, true).total; }

std::span<const ListedCodelet> fastfood_codelets() {
  static constexpr ListedCodelet kListed[] = {fastfood_forward_codelet, fastfood_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
