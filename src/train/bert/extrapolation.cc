#include "train/bert/extrapolation.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/pipeline.h>
#include <tessera/run_cost.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "machine/model/machine.h"
#include "program/program.h"
#include "train/bert/network.h"

namespace tessera::train {
namespace {

using graph::ChipSpan;
using graph::PipelineKind;
using graph::RunCost;

TileUse tile_use(const std::map<std::string, uint64_t>& purposes) {
  TileUse use;
  for (const auto& [purpose, bytes] : purposes) {
    use.total += bytes;
    if (purpose == name_of(program::Purpose::stash)) use.stash += bytes;
    if (purpose == name_of(program::Purpose::optimizer)) use.optimizer += bytes;
  }
  return use;
}

void add_memory(StageUse& use, const RunCost& cost, uint32_t stage, const SmallNetworkKey& key) {
  const size_t tiles = cost.tiles.size() / key.stages;
  for (size_t t = stage * tiles; t < (stage + 1) * tiles; ++t) {
    use.tiles.push_back(tile_use(cost.tiles[t]));
    use.optimizer += static_cast<double>(use.tiles.back().optimizer);
  }
  std::ranges::sort(use.tiles);
  const auto repeated = std::ranges::unique(use.tiles);
  use.tiles.erase(repeated.begin(), repeated.end());
  uint64_t most = cost.chips.empty() ? cost.streaming_bytes : 0;
  for (uint32_t c = stage * key.chips; c < (stage + 1) * key.chips && c < cost.chips.size(); ++c)
    most = std::max(most, cost.chips[c].streaming_bytes);
  use.streaming = static_cast<double>(most);
}

/// The use of a stage of a small network whose chips are divided among `stages`.
StageUse stage_use(const RunCost& cost, uint32_t stage, const SmallNetworkKey& key, uint32_t micro_batches,
                   double clock_hz) {
  StageUse use;
  add_memory(use, cost, stage, key);
  if (key.stages == 1) {
    use.pass = cost.seconds / micro_batches;
    return use;
  }
  use.in_flight = key.stages + 1 - stage;
  for (const ChipSpan& span : cost.lanes.at(stage * cost.lanes.size() / key.stages).spans) {
    const double seconds = (span.end - span.begin) / clock_hz;
    switch (span.kind) {
      case ChipSpan::Kind::forward:
      case ChipSpan::Kind::recomputed:
      case ChipSpan::Kind::backward:
      case ChipSpan::Kind::backward_input:
      case ChipSpan::Kind::backward_weight:
      case ChipSpan::Kind::exchange: use.pass += seconds / micro_batches; break;
      case ChipSpan::Kind::collective: use.collective += seconds; break;
      case ChipSpan::Kind::other: use.other += seconds; break;
      case ChipSpan::Kind::waiting: break;
    }
  }
  return use;
}

/// Bytes of the fullest tile with `in_flight` micro-batches in flight, if the fraction `elsewhere` of the
/// optimizer's state is not on tiles.
double fullest_tile(const StageUse& use, uint32_t in_flight, double elsewhere) {
  const double further = static_cast<double>(in_flight) / use.in_flight - 1;
  double most = 0;
  for (const TileUse& tile : use.tiles)
    most = std::max(most, static_cast<double>(tile.total) + further * static_cast<double>(tile.stash) -
                              elsewhere * static_cast<double>(tile.optimizer));
  return most;
}

/// Micro-batches that a stage holds. The predictions are a stage after the last one.
uint32_t micro_batches_in_flight(const PretrainingSettings& s, uint32_t stage) {
  if (s.stages == 1 || !graph::has_several_in_flight(s.pipeline)) return 1;
  return std::min(s.micro_batches, s.stages + 1 - stage);
}

/// The fraction of the optimizer's state that the tiles of a replica do not hold.
double state_elsewhere(const PretrainingSettings& s) {
  if (s.offload_from) return 1;
  return s.shard_from ? 1 - 1.0 / s.replicas : 0;
}

uint32_t smallest_factor(uint32_t number) {
  for (uint32_t factor = 2; factor * factor <= number; ++factor)
    if (number % factor == 0) return factor;
  return number;
}

/// The cost of `layers` layers, extrapolated from one and two layers.
StageCost of_layers(double layers, const StageCost& one, const StageCost& two) {
  const auto at = [&](double StageCost::*figure) {
    return one.*figure + (layers - 1) * (two.*figure - one.*figure);
  };
  return {.pass = at(&StageCost::pass),
          .once = at(&StageCost::once),
          .tile = at(&StageCost::tile),
          .streaming = at(&StageCost::streaming)};
}

std::string name_of_networks(const SmallNetworkKey& key) {
  return fmt::format("small networks on {} stages of {} chips, micro-batches of {} packs", key.stages,
                     key.chips, key.packs);
}

SmallNetworkKey without_savings(SmallNetworkKey key) {
  key.offload_weights = key.offload_gradients = key.offload_activations = key.shard_weights = false;
  key.head_slices = 1;
  return key;
}

}  // namespace

PretrainingSettings undivided(PretrainingSettings s) {
  s.replicas = s.stages = s.micro_batches = s.head_slices = 1;
  s.stage_layers.clear();
  s.stage_feed_forwards.clear();
  s.head_layers = s.head_feed_forwards = 0;
  s.pipeline = PipelineKind::sequential;
  s.recompute = false;
  s.memory_budget.reset();
  s.shard_from.reset();
  s.shard_weights_from.reset();
  s.offload_from.reset();
  s.offload_weights_from.reset();
  s.offload_gradients_from.reset();
  s.offload_activations_from.reset();
  return s;
}

PretrainingCost with_lack(PretrainingCost cost, const Machine& machine) {
  const auto beyond = [](uint64_t needed, uint64_t has) { return needed > has ? needed - has : 0; };
  cost.lacking_tile_bytes = beyond(cost.fullest_tile_bytes, machine.tile_bytes());
  cost.lacking_streaming_bytes = beyond(cost.streaming_bytes, machine.model().streaming_bytes);
  return cost;
}

StepExtrapolation::StepExtrapolation(const PretrainingSettings& settings, const graph::BertBatch& shape,
                                     const Machine& machine, uint64_t large, uint32_t threads, Begin begin)
    : settings_(undivided(settings)),
      shape_(shape),
      machine_(machine),
      large_(large),
      threads_(threads),
      begin_(std::move(begin)) {}

std::vector<SmallNetworkKey> StepExtrapolation::keys_of(const PretrainingSettings& s) const {
  SmallNetworkKey plain;
  plain.stages = smallest_factor(s.stages);
  plain.chips = chips_of_stage(s);
  plain.packs = packs() / s.micro_batches / s.replicas;
  plain.recompute = s.recompute;
  std::vector<SmallNetworkKey> keys = {plain};
  const auto saving = [&](uint32_t of_packs) -> SmallNetworkKey& {
    keys.push_back(plain);
    keys.back().packs = of_packs;
    return keys.back();
  };
  // Time and memory of parameters and their gradients do not depend on the packs, but the time that is hidden
  // does.
  if (s.offload_weights_from) saving(s.prefetch ? plain.packs : 1).offload_weights = true;
  if (s.offload_gradients_from && s.micro_batches > 1) saving(1).offload_gradients = true;
  if (s.shard_weights_from) saving(1).shard_weights = true;
  if (s.offload_activations_from) saving(plain.packs).offload_activations = true;
  if (s.head_slices > 1) saving(plain.packs).head_slices = s.head_slices;
  return keys;
}

std::optional<PretrainingCost> StepExtrapolation::cost_of(const PretrainingSettings& s) {
  const std::vector<SmallNetworkKey> keys = keys_of(s);
  const SmallNetworks* plain = networks(keys[0]);
  if (plain == nullptr) return {};
  std::vector<Difference> differences;
  for (size_t i = 1; i < keys.size(); ++i) {
    Difference of_saving = difference(keys[i], s);
    of_saving.without = networks(without_savings(keys[i]));
    of_saving.with = of_saving.without == nullptr ? nullptr : networks(keys[i]);
    if (of_saving.with == nullptr) return {};
    differences.push_back(of_saving);
  }
  return composed(*plain, differences, s);
}

/// Each replica fetches its part of parameters that are divided and offloaded.
StepExtrapolation::Difference StepExtrapolation::difference(const SmallNetworkKey& key,
                                                            const PretrainingSettings& s) const {
  Difference of_saving;
  of_saving.offloads_activations = key.offload_activations;
  if (key.shard_weights) {
    of_saving.time = rounds_of(s);
    of_saving.tile = s.offload_weights_from ? 0 : rounds_of(s);
  }
  if (key.offload_weights && s.shard_weights_from) of_saving.time = of_saving.streaming = 1.0 / s.replicas;
  return of_saving;
}

PretrainingCost StepExtrapolation::composed(const SmallNetworks& plain,
                                            const std::vector<Difference>& differences,
                                            const PretrainingSettings& s) const {
  double of_all = 0, of_slowest = 0, once = 0, bytes = 1, streaming = 0;
  for (uint32_t stage = 0; stage < s.stages; ++stage) {
    const uint32_t in_flight = micro_batches_in_flight(s, stage);
    StageCost cost = cost_of_stage(plain, s, stage, in_flight);
    for (const Difference& d : differences) add(d, s, stage, cost);
    of_all += cost.pass;
    of_slowest = std::max(of_slowest, cost.pass);
    once = std::max(once, cost.once);
    bytes = std::max(bytes, cost.tile);
    streaming = std::max(streaming, cost.streaming);
  }
  const double times = s.micro_batches;
  const double passes =
      s.pipeline == PipelineKind::sequential ? times * of_all : of_all + (times - 1) * of_slowest;
  PretrainingCost cost = with_lack({.seconds = once + passes,
                                    .fullest_tile_bytes = static_cast<uint64_t>(bytes),
                                    .streaming_bytes = static_cast<uint64_t>(streaming)},
                                   machine_);
  cost.fits = cost.lacking_tile_bytes == 0 && cost.lacking_streaming_bytes == 0;
  return cost;
}

void StepExtrapolation::add(const Difference& d, const PretrainingSettings& s, uint32_t stage,
                            StageCost& cost) const {
  double time = d.time, tile = d.tile, streaming = d.streaming;
  const uint32_t in_flight = micro_batches_in_flight(s, stage);
  uint32_t compared = in_flight;
  if (d.offloads_activations) {  // tiles hold one of all micro-batches in flight
    compared = (stage == 0 ? d.with->one.first : d.with->one.further).in_flight;
    time = in_flight > 1 ? 1 : 0;
    tile = (in_flight - 1.0) / (compared - 1.0);
    streaming = time * in_flight / compared;
  }
  const StageCost without = cost_of_stage(*d.without, s, stage, compared);
  const StageCost with = cost_of_stage(*d.with, s, stage, compared);
  cost.pass += time * (with.pass - without.pass);
  cost.once += time * (with.once - without.once);
  cost.tile += tile * (with.tile - without.tile);
  cost.streaming += streaming * (with.streaming - without.streaming);
}

StageCost StepExtrapolation::cost_of_stage(const SmallNetworks& small, const PretrainingSettings& s,
                                           uint32_t stage, uint32_t in_flight) const {
  const StageUse& one = stage == 0 ? small.one.first : small.one.further;
  const StageUse& two = stage == 0 ? small.two.first : small.two.further;
  const double layers = s.stage_layers.empty()
                            ? static_cast<double>(settings_.config.num_hidden_layers) / s.stages
                            : static_cast<double>(s.stage_layers[stage]);
  return of_layers(layers, cost_of_use(one, s, in_flight), cost_of_use(two, s, in_flight));
}

StageCost StepExtrapolation::cost_of_use(const StageUse& use, const PretrainingSettings& s,
                                         uint32_t in_flight) const {
  StageCost cost{.pass = use.pass,
                 .once = use.other + use.collective * rounds_of(s),
                 .tile = fullest_tile(use, in_flight, state_elsewhere(s)),
                 .streaming = use.streaming};
  const double rate = machine_.model().streaming_bytes_per_second;
  if (!s.offload_from || rate == 0) return cost;
  const double state = use.optimizer / (s.shard_from ? s.replicas : 1U) / chips_of_stage(s);
  cost.once += 2 * state / rate;  // read and written
  cost.streaming += state;
  return cost;
}

/// Rounds of a ring of its replicas, relative to those of the small networks' replicas.
double StepExtrapolation::rounds_of(const PretrainingSettings& s) const {
  const auto sent = [](uint32_t replicas) { return 1 - 1.0 / replicas; };
  if (s.replicas == 1) return 0;
  return sent(s.replicas) / sent(machine_.chips() / (smallest_factor(s.stages) * chips_of_stage(s)));
}

const SmallNetworks* StepExtrapolation::networks(const SmallNetworkKey& key) {
  const auto [found, is_new] = networks_.try_emplace(key);
  if (is_new && begin_(name_of_networks(key))) estimate(key, found->second);
  return found->second ? &*found->second : nullptr;
}

void StepExtrapolation::estimate(const SmallNetworkKey& key, std::optional<SmallNetworks>& small) {
  const bool alone = (threads_ == 0 ? default_threads() : threads_) == 1;
  try {
    auto two = std::async(alone ? std::launch::deferred : std::launch::async,
                          [this, key] { return small_network(key, 2); });
    SmallNetwork one = small_network(key, 1);
    small = SmallNetworks{std::move(one), two.get()};
    estimates_ += 2;
  } catch (const UsageError&) {
    throw;
  } catch (const Error&) {  // an operation does not fit
  }
}

/// The replicas take all chips, so that their sums take the links that they take in a whole network.
SmallNetwork StepExtrapolation::small_network(const SmallNetworkKey& key, uint32_t of_stage) const {
  PretrainingSettings s = settings_;
  const auto from = [&](bool is_used) { return is_used ? std::optional(large_) : std::nullopt; };
  s.config.num_hidden_layers = key.stages * of_stage;
  s.stages = key.stages;
  s.replicas = machine_.chips() / (key.stages * key.chips);
  s.recompute = key.recompute;
  s.head_slices = key.head_slices;
  s.micro_batches = packs() / s.replicas / key.packs;
  if (s.stages > 1) {
    s.pipeline = PipelineKind::one_forward_one_backward;
    s.micro_batches = 2 * (s.stages + 1);  // twice as many as are in flight
  }
  s.offload_weights_from = from(key.offload_weights);
  s.offload_gradients_from = from(key.offload_gradients);
  s.offload_activations_from = from(key.offload_activations);
  s.shard_weights_from = from(key.shard_weights);
  graph::BertBatch batch = shape_;
  batch.packs = key.packs * s.micro_batches * s.replicas;
  const RunCost cost = graph::estimate(pretraining_graph(s, batch), machine_);
  const auto use = [&](uint32_t stage) {
    return stage_use(cost, stage, key, s.micro_batches, machine_.clock_hz());
  };
  return {use(0), use(s.stages - 1)};
}

}  // namespace tessera::train
