#include "lower/stage_balance.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>

#include "graph/loop.h"
#include "lower/step_times.h"

namespace tessera::graph {
namespace {

/// Adds up the cycles of operations by layer.
class LayerCycles {
 public:
  LayerCycles(size_t layers, const engine::Profile& profile) : of_layers_(layers), profile_(profile) {}

  void add(const Graph& graph, const Lowered& lowered, const Stages& layers) {
    std::map<uint32_t, std::vector<uint32_t>> sharing;  // nodes, by the first that has the same code
    for (uint32_t n = 0; n < graph.nodes().size(); ++n) {
      const auto first = lowered.counted_with.find(n);
      sharing[first == lowered.counted_with.end() ? n : first->second].push_back(n);
    }
    for (const auto& [first, nodes] : sharing) {
      double cycles = 0;
      for (const uint32_t n : nodes) cycles += cycles_of(lowered, n);
      if (is_loop(graph.nodes()[first]))
        of_loops_ += cycles;
      else
        for (const uint32_t n : nodes)
          of_layers_[layers.nodes[n]] += cycles / static_cast<double>(nodes.size());
    }
    for (const auto& [n, body] : lowered.loops) add(*graph.nodes()[n].body, *body, layers.loops.at(n));
  }

  /// Loops themselves mostly add gradients to their sums, so their cycles count by bytes of parameters.
  uint64_t of_layer(const LayerBytes& layer, size_t number, uint64_t all_bytes) const {
    const double fraction =
        all_bytes == 0 ? 0 : static_cast<double>(layer.kept) / static_cast<double>(all_bytes);
    return static_cast<uint64_t>(std::llround(of_layers_[number] + fraction * of_loops_));
  }

 private:
  double cycles_of(const Lowered& lowered, uint32_t node) const {
    double cycles = 0;
    for (const Lowered::Sets& sets : lowered.sets[node]) cycles += times_of(sets, profile_).cycles.total();
    return cycles;
  }

  std::vector<double> of_layers_;
  double of_loops_ = 0;
  const engine::Profile& profile_;
};

class StageCuts {
 public:
  StageCuts(std::span<const LayerCost> layers, uint32_t stages, uint32_t in_flight)
      : layers_(layers), stages_(stages), in_flight_(in_flight) {
    for (const LayerCost& layer : layers) {
      all_cycles_ += layer.cycles;
      all_bytes_ += bytes_of(layer, 0);
    }
  }

  std::vector<uint32_t> best(uint64_t chip_bytes) const {
    uint64_t bytes = std::min(chip_bytes, all_bytes_);
    if (!within(all_cycles_, bytes))
      bytes = least(all_bytes_, [&](uint64_t limit) { return within(all_cycles_, limit).has_value(); });
    const uint64_t cycles =
        least(all_cycles_, [&](uint64_t limit) { return within(limit, bytes).has_value(); });
    bytes = least(bytes, [&](uint64_t limit) { return within(cycles, limit).has_value(); });
    return within(cycles, bytes).value();
  }

 private:
  /// A cut whose stages stay within limits, if there is one. A later stage holds no more micro-batches than
  /// an earlier one, so the last one takes as many layers as it may, then the one before it.
  std::optional<std::vector<uint32_t>> within(uint64_t cycles, uint64_t bytes) const {
    std::vector<uint32_t> first(stages_);
    auto end = static_cast<uint32_t>(layers_.size());
    for (uint32_t stage = stages_; stage-- > 0;) {
      const uint32_t begin = begin_within(stage, end, cycles, bytes);
      if (begin == end) return {};
      first[stage] = end = begin;
    }
    if (end > 0) return {};
    return first;
  }

  /// Leaves a layer for each stage before this one.
  uint32_t begin_within(uint32_t stage, uint32_t end, uint64_t cycles, uint64_t bytes) const {
    uint64_t own_cycles = 0, own_bytes = 0;
    while (end > stage) {
      own_cycles += layers_[end - 1].cycles;
      own_bytes += bytes_of(layers_[end - 1], stage);
      if (own_cycles > cycles || own_bytes > bytes) return end;
      --end;
    }
    return end;
  }

  uint64_t bytes_of(const LayerCost& layer, uint32_t stage) const {
    return layer.bytes.kept + std::min(in_flight_, stages_ - stage) * layer.bytes.stash;
  }

  /// The least limit for which `is_found` is true; it must be true for `most`.
  template <class IsFound>
  static uint64_t least(uint64_t most, const IsFound& is_found) {
    for (uint64_t low = 0; low < most;) {
      const uint64_t middle = low + (most - low) / 2;
      if (is_found(middle))
        most = middle;
      else
        low = middle + 1;
    }
    return most;
  }

  std::span<const LayerCost> layers_;
  uint32_t stages_;
  uint32_t in_flight_;
  uint64_t all_cycles_ = 0, all_bytes_ = 0;
};

}  // namespace

std::vector<LayerCost> costs_of_layers(const Graph& graph, const WholeLayers& layers, const Lowered& lowered,
                                       const engine::Profile& profile) {
  if (layers.count() == 0) return {};
  LayerCycles cycles(layers.count(), profile);
  cycles.add(graph, lowered, layers.stages);
  uint64_t all_bytes = 0;
  for (const LayerBytes& bytes : layers.bytes) all_bytes += bytes.kept;
  std::vector<LayerCost> costs;
  for (const LayerBytes& bytes : layers.bytes)
    costs.push_back({cycles.of_layer(bytes, costs.size(), all_bytes), bytes});
  return costs;
}

std::vector<uint32_t> balanced_stages(std::span<const LayerCost> layers, uint32_t stages, uint64_t chip_bytes,
                                      uint32_t in_flight) {
  assert(stages > 0 && stages <= layers.size());
  return StageCuts(layers, stages, in_flight).best(chip_bytes);
}

}  // namespace tessera::graph
