#include "kernels/host/host_codelet.h"
#include "kernels/host/spiking/neurons.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_NEURONS_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_NEURONS_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_NEURONS_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet neurons_forward_codelet =
    host_codelet("neurons_forward", kForwardFields, kParams, neurons_forward_reference, neurons_forward,
                 neurons_forward_cost, 16384);

constexpr program::Codelet neurons_gradients_codelet =
    host_codelet("neurons_gradients", kGradientsFields, kParams, neurons_gradients_reference,
                 neurons_gradients, neurons_gradients_cost, 16384);

std::span<const ListedCodelet> neurons_codelets() {
  static constexpr ListedCodelet kListed[] = {neurons_forward_codelet, neurons_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
