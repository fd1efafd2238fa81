// Stages of a graph: on which chips its operations run.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera::graph {

/// The stage that a call or a loop names.
std::optional<uint32_t> stage_of(const Node& node);
/// Whether any does, in loops too.
bool has_stages(const Graph& graph);

/// Stages of operations, by their positions in a graph, and of those of its loops.
struct Stages {
  std::vector<uint32_t> nodes = {};
  std::map<uint32_t, Stages> loops = {};  ///< by node

  uint32_t count() const;
};

/// Those that calls and loops name. Other operations run where their parameters are, which are where they are
/// taken first, or else follow their inputs, and gradients the forward values from which they are computed.
Stages stages_of(const Graph& graph);

/// Whatever is named: layers in their order, so that each stage has about as many bytes of parameters, and
/// gradients and updates where the layer is that they belong to. Fewer stages than asked for if there are
/// fewer parameters.
Stages stages_of_layers(const Graph& graph, uint32_t stages);

/// The stage of the operation that computes a value, or of the first that takes it, in loops too.
uint32_t stage_of(const Graph& graph, const Stages& stages, ValueId id);

}  // namespace tessera::graph
