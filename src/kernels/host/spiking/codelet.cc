#include "kernels/host/spiking/codelet.h"

#include "kernels/host/host_codelet.h"
#include "kernels/host/spiking/cost.h"
#include "kernels/host/spiking/layout.h"
#include "kernels/host/spiking/spiking.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_SPIKING_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_SPIKING_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_SPIKING_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet spiking_forward_codelet =
    host_codelet("spiking_forward", kForwardFields, kParams, spiking_forward_reference, spiking_forward,
                 spiking_forward_cost, 16384);

constexpr program::Codelet spiking_gradients_codelet =
    host_codelet("spiking_gradients", kGradientsFields, kParams, spiking_gradients_reference,
                 spiking_gradients, spiking_gradients_cost, 16384);

uint32_t spiking_panel_width(uint32_t neurons) {
  constexpr uint32_t kLine = 16;
  return neurons >= kSpikingPanel ? kSpikingPanel : (neurons + kLine - 1) / kLine * kLine;
}

uint32_t spiking_panel_rows(const SpikingShape& shape) {
  const uint32_t width = spiking_panel_width(shape.neurons);
  return width == 0 ? 0 : (shape.neurons + width - 1) / width * shape.sources();
}

size_t spiking_forward_scratch(const SpikingShape& shape) { return SpikingForwardScratch(shape).floats; }
size_t spiking_gradients_scratch(const SpikingShape& shape) { return SpikingGradientsScratch(shape).floats; }

SpikingNeuronParams spiking_params(const Neuron& n, bool recurrent) {
  const int64_t kinds = int64_t{n.spikes} | int64_t{n.synaptic} << 1 | int64_t{n.adaptive} << 2 |
                        int64_t{n.fires_at_threshold} << 3 | int64_t{recurrent} << 4 |
                        static_cast<int64_t>(n.mask) << 5 | static_cast<int64_t>(n.reset_gradient) << 6 |
                        static_cast<int64_t>(n.reset) << 8 | static_cast<int64_t>(n.surrogate.family) << 12;
  return {kinds,
          param_of(n.surrogate.slope),
          param_of(n.surrogate.scale),
          param_of(n.gain),
          param_of(n.adaptation_decay),
          param_of(n.adaptation_strength)};
}

std::span<const ListedCodelet> spiking_codelets() {
  static constexpr ListedCodelet kListed[] = {spiking_forward_codelet, spiking_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
