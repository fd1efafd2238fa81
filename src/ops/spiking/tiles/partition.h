// Spiking layers on tiles: each neuron on a tile of its own layer, the same number of them on each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "machine/model/machine.h"
#include "ops/spiking/spiking.h"

namespace tessera::ops {

/// Where a layer lies. Layers step together: in pass k of the loop over steps, a layer is at step k − offset,
/// for which it has the spikes that the layer before has fired in passes before.
struct SpikingTileLayer {
  program::TileId first_tile = 0;
  uint32_t tiles = 0;
  uint32_t neurons = 0;
  uint32_t offset = 0;
  std::vector<uint32_t> sample_begin = {};  ///< lists of these samples are made on its first tiles

  uint32_t list_tiles() const { return static_cast<uint32_t>(sample_begin.size() - 1); }
};

struct SpikingTilePartition {
  uint32_t neurons_per_tile = 0;
  uint32_t passes = 0;
  uint32_t input_row = 0;  ///< the pass in which the first layer takes the inputs of step 0
  std::vector<SpikingTileLayer> layers = {};

  uint32_t tiles() const { return layers.back().first_tile + layers.back().tiles; }
  /// The neurons of tile i of a layer: the first, and how many.
  uint32_t first_neuron(uint32_t tile) const { return tile * neurons_per_tile; }
  uint32_t neurons_of(const SpikingTileLayer& layer, uint32_t tile) const;
};

/// As few pairs of neurons per tile as the machine has tiles for, or so many neurons.
/// Throws UsageError if there are more layers than tiles.
SpikingTilePartition partition_spiking(const std::vector<SpikingProblem>& problems,
                                       const machine::Machine& machine,
                                       std::optional<uint32_t> neurons_per_tile = {});

/// `per_neuron` columns for each neuron of a layer, of so many rows, on the neuron's tile.
std::vector<program::MappedBox> map_neurons(const SpikingTilePartition& partition,
                                            const SpikingTileLayer& layer, uint32_t rows,
                                            uint32_t per_neuron = 1);
/// `per_sample` columns for each sample, on the tile that makes its lists.
std::vector<program::MappedBox> map_lists(const SpikingTileLayer& layer, uint32_t rows, uint32_t per_sample);

}  // namespace tessera::ops
