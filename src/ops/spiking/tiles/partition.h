// Spiking layers on tiles: each neuron on a tile of its own layer, the same number of them on each.
#pragma once

#include <algorithm>
#include <cstdint>
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
  uint32_t neurons_per_tile = 0;
  uint32_t offset = 0;
  program::TileId first_list_tile = 0;      ///< of those that make its lists
  std::vector<uint32_t> sample_begin = {};  ///< samples of each of these, and the end
  uint32_t first_time = 0;                  ///< columns of the numbers of steps: of its tiles, then of those
                                            ///< that make lists

  uint32_t list_tiles() const { return static_cast<uint32_t>(sample_begin.size() - 1); }
  /// The neurons of its tile i: the first, and how many.
  uint32_t first_neuron(uint32_t tile) const { return tile * neurons_per_tile; }
  uint32_t neurons_of(uint32_t tile) const {
    return std::min(neurons_per_tile, neurons - first_neuron(tile));
  }
};

struct SpikingTilePartition {
  uint32_t passes = 0;
  uint32_t input_row = 0;  ///< the pass in which the first layer takes the inputs of step 0
  uint32_t times = 0;      ///< columns of the numbers of steps, of all layers
  std::vector<SpikingTileLayer> layers = {};
};

/// So many neurons of each layer per tile; where none or 0 are given, as few pairs as the machine has tiles
/// for. A layer that does not fit the rest of a chip lies on the next one. Lists of a layer on fewer tiles
/// than there are samples are made on others of its chip, if these make none. Throws UsageError if the layers
/// do not fit the machine's tiles.
SpikingTilePartition partition_spiking(const std::vector<SpikingProblem>& problems,
                                       const machine::Machine& machine,
                                       const std::vector<uint32_t>& neurons_per_tile = {});

/// `per_neuron` columns for each neuron of a layer, of `rows` rows, on the neuron's tile.
std::vector<program::MappedBox> map_neurons(const SpikingTileLayer& layer, uint32_t rows,
                                            uint32_t per_neuron = 1);
/// `per_sample` columns for each sample, on the tile that makes its lists.
std::vector<program::MappedBox> map_lists(const SpikingTileLayer& layer, uint32_t rows, uint32_t per_sample);

}  // namespace tessera::ops
