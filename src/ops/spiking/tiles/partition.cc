#include "ops/spiking/tiles/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/ceil_divide.h"
#include "ops/split.h"

namespace tessera::ops {
namespace {

/// The first tile of each layer, and the end of the last.
std::vector<uint32_t> place_layers(const std::vector<SpikingProblem>& problems,
                                   const machine::Machine& machine,
                                   const std::vector<uint32_t>& neurons_per_tile) {
  std::vector<uint32_t> first;
  uint32_t next = 0;
  for (size_t l = 0; l < problems.size(); ++l) {
    const uint32_t tiles = base::ceil_divide(problems[l].layer.neurons, neurons_per_tile[l]);
    if (machine.chip_count() > 1 && tiles <= machine.chip_tiles) {
      const uint32_t end = (machine.chip_of(next) + 1) * machine.chip_tiles - machine.first_tile;
      if (next + tiles > end) next = end;
    }
    first.push_back(next);
    next += tiles;
  }
  first.push_back(next);
  return first;
}

/// Fills in what is not given: as few pairs as there are tiles for, and fewer of small layers where tiles
/// remain. One neuron costs as much as the two whose states are a vector.
std::vector<uint32_t> fewest_per_tile(const std::vector<SpikingProblem>& problems,
                                      const machine::Machine& machine, std::vector<uint32_t> per_tile) {
  constexpr uint32_t kPair = 2;
  if (problems.size() > machine.tiles)
    throw UsageError(fmt::format("{} spiking layers need as many tiles; {} has {}", problems.size(),
                                 machine.name, machine.tiles));
  per_tile.resize(problems.size());
  std::vector<size_t> free;
  for (size_t l = 0; l < problems.size(); ++l)
    if (per_tile[l] == 0) free.push_back(l);
  const auto fits = [&] { return place_layers(problems, machine, per_tile).back() <= machine.tiles; };
  const uint32_t most =
      std::ranges::max(problems, {}, [](const auto& p) { return p.layer.neurons; }).layer.neurons + kPair;
  for (uint32_t pairs = kPair; pairs <= most; pairs += kPair) {
    for (const size_t l : free) per_tile[l] = pairs;
    if (fits()) break;
  }
  std::ranges::stable_sort(free, {}, [&](size_t l) { return problems[l].layer.neurons; });
  for (const size_t l : free)
    while (per_tile[l] > kPair) {
      per_tile[l] -= kPair;
      if (fits()) continue;
      per_tile[l] += kPair;
      break;
    }
  return per_tile;
}

/// The first of `count` consecutive free tiles of a chip; none: there is no such run.
std::optional<uint32_t> free_run(const std::vector<bool>& taken, uint32_t count, uint32_t begin,
                                 uint32_t end) {
  uint32_t run = 0;
  for (uint32_t tile = begin; tile < end; ++tile) {
    run = taken[tile] ? 0 : run + 1;
    if (run == count) return tile + 1 - count;
  }
  return {};
}

/// The tiles of a layer's chip.
std::pair<uint32_t, uint32_t> chip_around(const SpikingTileLayer& layer, const machine::Machine& machine) {
  if (machine.chip_count() == 1) return {0, machine.tiles};
  const uint32_t before = machine.chip_of(layer.first_tile) * machine.chip_tiles;
  return {std::max(before, machine.first_tile) - machine.first_tile,
          std::min(before + machine.chip_tiles - machine.first_tile, machine.tiles)};
}

/// Where the lists of all layers are made: those of large layers on their own tiles.
void place_lists(std::vector<SpikingTileLayer>& layers, uint32_t batch, const machine::Machine& machine) {
  std::vector<bool> taken(machine.tiles);
  const auto place = [&](SpikingTileLayer& layer, uint32_t first, uint32_t tiles) {
    layer.first_list_tile = first;
    layer.sample_begin = split_evenly(batch, tiles);
    std::fill_n(taken.begin() + first, layer.list_tiles(), true);
  };
  for (SpikingTileLayer& layer : layers)
    if (layer.tiles >= batch) place(layer, layer.first_tile, layer.tiles);
  for (SpikingTileLayer& layer : layers) {
    if (layer.tiles >= batch) continue;
    const auto [begin, end] = chip_around(layer, machine);
    const std::optional<uint32_t> others = free_run(taken, batch, begin, end);
    others ? place(layer, *others, batch) : place(layer, layer.first_tile, layer.tiles);
  }
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

SpikingTilePartition partition_spiking(const std::vector<SpikingProblem>& problems,
                                       const machine::Machine& machine,
                                       const std::vector<uint32_t>& neurons_per_tile) {
  if (!neurons_per_tile.empty() && neurons_per_tile.size() != problems.size())
    throw UsageError(fmt::format("neurons per tile are given of {} spiking layers; there are {}",
                                 neurons_per_tile.size(), problems.size()));
  const std::vector<uint32_t> per_tile = fewest_per_tile(problems, machine, neurons_per_tile);
  const std::vector<uint32_t> first = place_layers(problems, machine, per_tile);
  if (first.back() > machine.tiles)
    throw UsageError(
        fmt::format("spiking layers of {} neurons per tile need {} tiles; {} has {}: take more per tile",
                    fmt::join(per_tile, ", "), first.back(), machine.name, machine.tiles));
  const std::vector<uint32_t> offsets = offsets_of(problems);
  SpikingTilePartition partition;
  for (size_t l = 0; l < problems.size(); ++l) {
    const uint32_t neurons = problems[l].layer.neurons;
    partition.layers.push_back({.first_tile = first[l],
                                .tiles = base::ceil_divide(neurons, per_tile[l]),
                                .neurons = neurons,
                                .neurons_per_tile = per_tile[l],
                                .offset = offsets[l]});
  }
  place_lists(partition.layers, problems[0].batch, machine);
  for (SpikingTileLayer& layer : partition.layers) {
    layer.first_time = partition.times;
    partition.times += layer.tiles + layer.list_tiles();
  }
  partition.passes = problems[0].steps + *std::ranges::max_element(offsets);
  partition.input_row = offsets[0] + problems[0].layer.delay;
  return partition;
}

std::vector<program::MappedBox> map_neurons(const SpikingTileLayer& layer, uint32_t rows,
                                            uint32_t per_neuron) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t i = 0; i < layer.tiles; ++i)
    mapping.push_back({{0, rows, layer.first_neuron(i) * per_neuron, layer.neurons_of(i) * per_neuron},
                       layer.first_tile + i});
  return mapping;
}

std::vector<program::MappedBox> map_lists(const SpikingTileLayer& layer, uint32_t rows, uint32_t per_sample) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t i = 0; i < layer.list_tiles(); ++i) {
    const uint32_t begin = layer.sample_begin[i], end = layer.sample_begin[i + 1];
    mapping.push_back({{0, rows, begin * per_sample, (end - begin) * per_sample}, layer.first_list_tile + i});
  }
  return mapping;
}

}  // namespace tessera::ops
