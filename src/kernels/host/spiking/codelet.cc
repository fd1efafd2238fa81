#include "kernels/host/spiking/codelet.h"

#include "kernels/host/spiking/layout.h"

namespace tessera::kernels {

TESSERA_DEFINE_FAMILY(spiking, TESSERA_SPIKING_CODELETS, TESSERA_HOST_CODELET)

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

}  // namespace tessera::kernels
