#include "ops/spiking/tiles/partition.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "ops/split.h"

namespace tessera::ops {
namespace {

uint32_t parts_of(uint32_t total, uint32_t part) { return (total + part - 1) / part; }

uint32_t tiles_for(const std::vector<SpikingProblem>& problems, uint32_t neurons_per_tile) {
  uint32_t tiles = 0;
  for (const SpikingProblem& problem : problems) tiles += parts_of(problem.layer.neurons, neurons_per_tile);
  return tiles;
}

/// The passes by which each layer begins later than the first of all.
std::vector<uint32_t> offsets_of(const std::vector<SpikingProblem>& problems) {
  std::vector<int64_t> offsets = {0};
  for (size_t i = 1; i < problems.size(); ++i)
    offsets.push_back(offsets.back() + 1 - int64_t{problems[i].layer.delay});
  const int64_t least = *std::ranges::min_element(offsets);
  std::vector<uint32_t> later;
  for (const int64_t offset : offsets) later.push_back(static_cast<uint32_t>(offset - least));
  return later;
}

}  // namespace

uint32_t SpikingTilePartition::neurons_of(const SpikingTileLayer& layer, uint32_t tile) const {
  return std::min(neurons_per_tile, layer.neurons - first_neuron(tile));
}

SpikingTilePartition partition_spiking(const std::vector<SpikingProblem>& problems,
                                       const machine::Machine& machine,
                                       std::optional<uint32_t> neurons_per_tile) {
  // One costs as much as the two whose states are a vector.
  constexpr uint32_t kPair = 2;
  SpikingTilePartition partition{.neurons_per_tile = neurons_per_tile.value_or(kPair)};
  if (partition.neurons_per_tile == 0) throw UsageError("0 neurons per tile; there must be at least 1");
  if (problems.size() > machine.tiles)
    throw UsageError(fmt::format("{} spiking layers need as many tiles; {} has {}", problems.size(),
                                 machine.name, machine.tiles));
  while (!neurons_per_tile && tiles_for(problems, partition.neurons_per_tile) > machine.tiles)
    partition.neurons_per_tile += kPair;
  const uint32_t tiles = tiles_for(problems, partition.neurons_per_tile);
  if (tiles > machine.tiles)
    throw UsageError(fmt::format("{} neurons per tile need {} tiles; {} has {}: take more per tile",
                                 partition.neurons_per_tile, tiles, machine.name, machine.tiles));
  const std::vector<uint32_t> offsets = offsets_of(problems);
  uint32_t first = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    SpikingTileLayer layer{.first_tile = first,
                           .tiles = parts_of(problems[i].layer.neurons, partition.neurons_per_tile),
                           .neurons = problems[i].layer.neurons,
                           .offset = offsets[i]};
    layer.sample_begin = split_evenly(problems[i].batch, layer.tiles);
    first += layer.tiles;
    partition.layers.push_back(std::move(layer));
  }
  partition.passes = problems[0].steps + *std::ranges::max_element(offsets);
  partition.input_row = offsets[0] + problems[0].layer.delay;
  return partition;
}

std::vector<program::MappedBox> map_neurons(const SpikingTilePartition& partition,
                                            const SpikingTileLayer& layer, uint32_t rows,
                                            uint32_t per_neuron) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t i = 0; i < layer.tiles; ++i)
    mapping.push_back(
        {{0, rows, partition.first_neuron(i) * per_neuron, partition.neurons_of(layer, i) * per_neuron},
         layer.first_tile + i});
  return mapping;
}

std::vector<program::MappedBox> map_lists(const SpikingTileLayer& layer, uint32_t rows, uint32_t per_sample) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t i = 0; i < layer.list_tiles(); ++i) {
    const uint32_t begin = layer.sample_begin[i], end = layer.sample_begin[i + 1];
    mapping.push_back({{0, rows, begin * per_sample, (end - begin) * per_sample}, layer.first_tile + i});
  }
  return mapping;
}

}  // namespace tessera::ops
