// Spiking layers on tiles: each layer has tiles of its own, with equally many neurons on each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "machine/model/machine.h"
#include "ops/spiking/spiking.h"

namespace tessera::ops {

/// The tiles of a layer. All layers compute in each pass of the loop over steps: in pass k a layer is at step
/// k − offset, for which the layer before has fired its spikes in earlier passes.
struct SpikingTileLayer {
  program::TileId first_tile = 0;
  uint32_t tiles = 0;
  uint32_t neurons = 0;
  uint32_t neurons_per_tile = 0;
  uint32_t offset = 0;
  program::TileId first_list_tile = 0;      ///< first of the tiles that make its lists
  std::vector<uint32_t> sample_begin = {};  ///< first sample of each tile that makes lists, and the end
  uint32_t first_time = 0;                  ///< first of its columns of step numbers: one per tile of its
                                            ///< neurons, then one per tile that makes lists

  uint32_t list_tiles() const { return static_cast<uint32_t>(sample_begin.size() - 1); }
  /// The first neuron of the layer's tile i, and their number.
  uint32_t first_neuron(uint32_t tile) const { return tile * neurons_per_tile; }
  uint32_t neurons_of(uint32_t tile) const {
    return std::min(neurons_per_tile, neurons - first_neuron(tile));
  }
};

struct SpikingTilePartition {
  uint32_t passes = 0;
  uint32_t input_row = 0;  ///< the pass in which the first layer takes the inputs of step 0
  uint32_t times = 0;      ///< number of columns of step numbers, over all layers
  std::vector<SpikingTileLayer> layers = {};
};

/// Partitions layers with `neurons_per_tile` neurons of each layer per tile; where none or 0 are given, with
/// as few pairs of neurons per tile as the number of tiles allows. A layer that does not fit on the rest of a
/// chip is placed on the next chip. If a layer has fewer tiles than there are samples, its lists are made on
/// other tiles of its chip that make no lists, if there are any. Throws UsageError if the machine has too few
/// tiles for the layers.
SpikingTilePartition partition_spiking(const std::vector<SpikingProblem>& problems,
                                       const machine::Machine& machine,
                                       const std::vector<uint32_t>& neurons_per_tile = {});

/// Mapping of a matrix with `per_neuron` columns per neuron of a layer and `rows` rows: columns on the
/// neuron's tile.
std::vector<program::MappedBox> map_neurons(const SpikingTileLayer& layer, uint32_t rows,
                                            uint32_t per_neuron = 1);
/// Mapping of a matrix with `per_sample` columns per sample: columns on the tile that makes the sample's
/// lists.
std::vector<program::MappedBox> map_lists(const SpikingTileLayer& layer, uint32_t rows, uint32_t per_sample);

}  // namespace tessera::ops
