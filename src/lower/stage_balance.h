// Which layers of a graph make a stage, so that stages take about equal time and fit their chips.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/run.h"
#include "graph/stages.h"
#include "lower/lowering.h"

namespace tessera::graph {

/// What a layer takes of a chip.
struct LayerCost {
  uint64_t cycles = 0;  ///< of a run, predicted
  LayerBytes bytes = {};
};

/// The costs of layers, by the estimate of the whole graph on one chip.
std::vector<LayerCost> costs_of_layers(const Graph& graph, const WholeLayers& layers, const Lowered& lowered,
                                       const engine::Profile& profile);

/// The first layers of stages, of which there are at most as many as layers. Of the cuts whose stages have no
/// more than `chip_bytes` each, or if there is none, of those whose fullest stage has the fewest bytes: one
/// whose slowest stage takes the fewest cycles, and among these, whose fullest stage has the fewest bytes.
/// Stage s of S holds a stash for S − s micro-batches, but no more than `in_flight`.
std::vector<uint32_t> balanced_stages(std::span<const LayerCost> layers, uint32_t stages, uint64_t chip_bytes,
                                      uint32_t in_flight);

}  // namespace tessera::graph
