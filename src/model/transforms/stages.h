// Stages of whole layers.
#pragma once

#include <tessera/model.h>

#include <cstdint>
#include <vector>

namespace tessera::model {

/// A stage for each node, in the order of Graph::set_stages: layers in their order, so that each stage has
/// about as many bytes of parameters, and gradients and updates where the layer is that they belong to. Fewer
/// stages than asked for if there are fewer parameters.
std::vector<uint32_t> stages_of_layers(const Graph& graph, uint32_t stages);

}  // namespace tessera::model
