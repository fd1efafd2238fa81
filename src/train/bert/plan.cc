#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/pipeline.h>
#include <tessera/pretraining_plan.h>
#include <tessera/run_cost.h>
#include <tessera/types.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <future>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "machine/model/machine.h"
#include "program/program.h"
#include "train/bert/network.h"
#include "train/bert/settings.h"
#include "train/trainer_impl.h"

namespace tessera {
namespace train {
namespace {

using graph::ChipSpan;
using graph::PipelineKind;
using graph::RunCost;

/// Bytes of a tile.
struct TileUse {
  double total = 0;
  double stash = 0;      ///< of `total`, for all micro-batches in flight
  double optimizer = 0;  ///< of `total`
};

/// What the chips of a stage do and hold.
struct StageUse {
  double pass = 0;         ///< seconds of a micro-batch, forward and backward
  double head = 0;         ///< seconds of a micro-batch's predictions, which are a stage of their own
  double collective = 0;   ///< seconds of a step
  double other = 0;        ///< seconds of a step, such as updates
  uint32_t in_flight = 1;  ///< micro-batches
  std::vector<TileUse> tiles = {};
};

/// The first stage has embeddings and predictions besides layers; further ones are alike.
struct SmallNetwork {
  StageUse first = {}, further = {};
};
/// With one and with two layers per stage.
struct SmallNetworks {
  SmallNetwork one = {}, two = {};
};
struct SmallNetworkKey {
  uint32_t stages = 1;
  uint32_t chips = 1;  ///< of each stage
  uint32_t packs = 1;  ///< of a micro-batch
  bool recompute = false;

  auto operator<=>(const SmallNetworkKey&) const = default;
};

TileUse tile_use(const std::map<std::string, uint64_t>& purposes) {
  TileUse use;
  for (const auto& [purpose, count] : purposes) {
    const auto bytes = static_cast<double>(count);
    use.total += bytes;
    if (purpose == name_of(program::Purpose::stash)) use.stash += bytes;
    if (purpose == name_of(program::Purpose::optimizer)) use.optimizer += bytes;
  }
  return use;
}

/// Of the stage of a network whose chips are divided among `stages`.
StageUse stage_use(const RunCost& cost, uint32_t stage, const PretrainingSettings& s, double clock_hz) {
  StageUse use;
  const size_t tiles = cost.tiles.size() / s.stages;
  for (size_t t = stage * tiles; t < (stage + 1) * tiles; ++t) use.tiles.push_back(tile_use(cost.tiles[t]));
  if (s.stages == 1) {
    use.pass = cost.seconds / s.micro_batches;
    return use;
  }
  use.in_flight = s.stages + 1 - stage;
  for (const ChipSpan& span : cost.lanes.at(stage * cost.lanes.size() / s.stages).spans) {
    const double seconds = (span.end - span.begin) / clock_hz;
    switch (span.kind) {
      case ChipSpan::Kind::forward:
      case ChipSpan::Kind::recomputed:
      case ChipSpan::Kind::backward:
      case ChipSpan::Kind::exchange:
        (stage == 0 && span.stage == s.stages ? use.head : use.pass) += seconds / s.micro_batches;
        break;
      case ChipSpan::Kind::collective: use.collective += seconds; break;
      case ChipSpan::Kind::other: use.other += seconds; break;
      case ChipSpan::Kind::waiting: break;
    }
  }
  return use;
}

/// Bytes of the fullest tile with so many micro-batches in flight, if a share of the optimizer's state lies
/// elsewhere.
double fullest_tile(const StageUse& use, uint32_t in_flight, double elsewhere) {
  const double further = static_cast<double>(in_flight) / use.in_flight - 1;
  double most = 0;
  for (const TileUse& tile : use.tiles)
    most = std::max(most, tile.total + further * tile.stash - elsewhere * tile.optimizer);
  return most;
}

/// Micro-batches that a stage holds. The predictions are a stage after the last one.
uint32_t micro_batches_in_flight(const PretrainingSettings& s, uint32_t stage) {
  if (s.stages == 1 || !graph::has_several_in_flight(s.pipeline)) return 1;
  return std::min(s.micro_batches, s.stages + 1 - stage);
}

/// Of the chip that has most in its streaming memory.
uint64_t streaming_bytes_of(const RunCost& cost) {
  if (cost.chips.empty()) return cost.streaming_bytes;
  return std::ranges::max_element(cost.chips, {}, &graph::ChipCost::streaming_bytes)->streaming_bytes;
}

uint32_t smallest_factor(uint32_t number) {
  for (uint32_t factor = 2; factor * factor <= number; ++factor)
    if (number % factor == 0) return factor;
  return number;
}

/// Layers of each stage: equally many, or fewer on the first one, which has more to do; empty for one stage.
std::vector<std::vector<uint32_t>> divisions_of_layers(uint32_t layers, uint32_t stages) {
  if (stages == 1) return {{}};
  std::vector<std::vector<uint32_t>> all;
  for (uint32_t first = 0; first <= layers / stages; ++first) {
    std::vector<uint32_t> of_stages = {first};
    const uint32_t left = layers - first, others = stages - 1;
    for (uint32_t i = 0; i < others; ++i) of_stages.push_back(left * (i + 1) / others - left * i / others);
    all.push_back(std::move(of_stages));
  }
  return all;
}

/// Settings with a pipeline, whose activations lie in streaming memory as asked for if several are in flight.
PretrainingSettings in_pipeline(PretrainingSettings s, PipelineKind kind,
                                const std::optional<uint64_t>& offload_activations_from) {
  s.pipeline = kind;
  s.offload_activations_from = graph::has_several_in_flight(kind) ? offload_activations_from : std::nullopt;
  return s;
}

class PretrainingPlanner {
 public:
  PretrainingPlanner(const PretrainingSettings& settings, const TextSplit& text, const Machine& machine,
                     const PretrainingPlanOptions& options)
      : offload_activations_from_(settings.offload_activations_from),
        settings_(with_vocabulary(in_pipeline(settings, settings.pipeline, offload_activations_from_), text)),
        text_(text),
        machine_(machine),
        options_(options) {
    plan_.tile_bytes = machine.tile_bytes();
    const PretrainingPhase& phase = settings_.phases[0];
    const PretrainingData data(text.train, {.length = phase.length,
                                            .packed = settings_.packed,
                                            .max_per_pack = settings_.max_per_pack,
                                            .seed = settings_.seed});
    check_packs(phase, data.packing().packs());
    shape_ = data.shape(1);
    PretrainingSettings whole = undivided();
    whole.micro_batches = 1;
    parameter_bytes_ = count_parameters(step_graph(whole, 1)) * size_of(numbers_of(settings_).parameters);
    most_estimates_ = options_.estimates + (options_.compare ? 1 : 0) + small_networks_on(1);
  }

  PretrainingPlan find() {
    if (options_.compare) estimate_given();
    const uint32_t chips = machine_.chips();
    for (uint32_t each = 1; each <= chips && wants_stages_on(each); ++each)
      if (chips % each == 0) consider_stages_on(each);
    plan_.considered = found_.size();
    std::ranges::stable_sort(found_, {}, [](const PretrainingDivision& division) {
      return std::pair(division.extrapolated->seconds, division.extrapolated->fullest_tile_bytes);
    });
    require_any();
    find_frontier();
    estimate_best();
    choose();
    return std::move(plan_);
  }

 private:
  uint32_t layers() const { return settings_.config.num_hidden_layers; }
  uint32_t packs() const { return settings_.phases[0].packs; }
  uint32_t chips_of_stage(const PretrainingSettings& s) const {
    return machine_.chips() / (s.replicas * s.stages);
  }
  /// Whether the chips are left to the placement of graphs, which compares several.
  bool is_placed_freely(const PretrainingSettings& s) const {
    return s.replicas == 1 && s.stages == 1 && machine_.chips() > 1;
  }

  PretrainingSettings undivided() const {
    PretrainingSettings s = settings_;
    s.replicas = s.stages = 1;
    s.stage_layers.clear();
    s.stage_feed_forwards.clear();
    s.head_layers = s.head_feed_forwards = 0;
    s.recompute = false;
    s.shard_from.reset();
    s.offload_from.reset();
    return in_pipeline(std::move(s), PipelineKind::sequential, {});
  }

  /// Of micro-batches of so many packs on each replica.
  graph::Graph step_graph(const PretrainingSettings& s, uint32_t each) const {
    graph::BertBatch batch = shape_;
    batch.packs = each * s.micro_batches * s.replicas;
    return pretraining_graph(s, batch);
  }

  bool wants_stages_on(uint32_t chips) const {
    if (std::ranges::any_of(found_, [](const auto& division) { return division.extrapolated->fits; }))
      return false;
    return chips <= options_.chips_per_stage || found_.empty();
  }

  /// Whether the tiles of a replica have room for parameters, if they lie there.
  bool may_hold_parameters(uint64_t tile_bytes) const {
    return settings_.offload_weights_from || parameter_bytes_ <= tile_bytes;
  }
  /// Calls visit(stages, replicas) for all that have so many chips for a stage, and enough for parameters.
  template <class Visit>
  void each_way(uint32_t chips, const Visit& visit) const {
    const uint32_t parts = machine_.chips() / chips;
    const uint64_t chip_bytes = machine_.tiles() / machine_.chips() * machine_.tile_bytes();
    for (uint32_t stages = 1; stages <= std::min(parts, layers()); ++stages) {
      const uint32_t replicas = parts / stages;
      const bool is_free = parts == 1 && chips > 1;
      if (parts % stages == 0 && !is_free && packs() % replicas == 0 &&
          may_hold_parameters(stages * chips * chip_bytes))
        visit(stages, replicas);
    }
  }
  /// Calls visit(packs) for sizes of micro-batches, the smallest first, until it returns false.
  template <class Visit>
  void each_size(uint32_t replicas, const Visit& visit) const {
    const uint32_t of_replica = packs() / replicas;
    for (uint32_t size = 1; of_replica % size == 0 && visit(size); size *= 2) {
    }
  }

  /// How many pairs of small networks tell what stages on so many chips take.
  size_t small_networks_on(uint32_t chips) const {
    std::set<SmallNetworkKey> keys;
    each_way(chips, [&](uint32_t stages, uint32_t replicas) {
      each_size(replicas, [&](uint32_t size) {
        for (const bool recompute : {false, true})
          keys.insert(SmallNetworkKey{smallest_factor(stages), chips, size, recompute});
        return true;
      });
    });
    return keys.size();
  }

  void consider_stages_on(uint32_t chips) {
    each_way(chips, [&](uint32_t stages, uint32_t replicas) {
      for (const bool recompute : {false, true})
        each_size(replicas, [&](uint32_t size) {  // larger ones do not fit where smaller ones do not
          PretrainingSettings s = undivided();
          s.stages = stages;
          s.replicas = replicas;
          s.recompute = recompute;
          s.micro_batches = packs() / replicas / size;
          return consider(s);
        });
    });
  }

  /// Considers all layers, orders and places of the optimizer's state. Returns whether one fits.
  bool consider(PretrainingSettings s) {
    bool fits = false;
    for (const std::vector<uint32_t>& of_stages : divisions_of_layers(layers(), s.stages))
      for (const PipelineKind pipeline : {PipelineKind::sequential, PipelineKind::one_forward_one_backward}) {
        if (pipeline != PipelineKind::sequential && s.stages == 1) continue;
        s.stage_layers = of_stages;
        fits |= consider_places_of_state(in_pipeline(s, pipeline, offload_activations_from_));
      }
    return fits;
  }

  bool consider_places_of_state(PretrainingSettings s) {
    bool fits = false;
    for (const bool shard : {false, true})
      for (const bool offload : {false, true}) {
        if ((shard && s.replicas == 1) || (offload && machine_.model().streaming_bytes == 0)) continue;
        s.shard_from = shard ? std::optional(options_.large) : std::nullopt;
        s.offload_from = offload ? std::optional(options_.large) : std::nullopt;
        std::optional<PretrainingCost> cost = extrapolated(s);
        if (!cost) return false;
        fits |= cost->fits;
        found_.push_back({s, std::move(cost), {}});
      }
    return fits;
  }

  /// None: operations of small networks alone take more memory than there is.
  std::optional<PretrainingCost> extrapolated(const PretrainingSettings& s) {
    const auto& small = small_networks(
        {smallest_factor(s.stages), chips_of_stage(s), packs() / s.micro_batches / s.replicas, s.recompute});
    if (!small) return {};
    double of_all = 0, of_slowest = 0, once = 0, bytes = 0;
    for (uint32_t stage = 0; stage < s.stages; ++stage) {
      const StageUse& one = stage == 0 ? small->one.first : small->one.further;
      const StageUse& two = stage == 0 ? small->two.first : small->two.further;
      const double count = s.stage_layers.empty() ? static_cast<double>(layers()) / s.stages
                                                  : static_cast<double>(s.stage_layers[stage]);
      const auto at = [&](const auto& figure_of) {
        const double first = figure_of(one);
        return first + (count - 1) * (figure_of(two) - first);
      };
      const double busy = at([](const StageUse& use) { return use.pass + use.head; });
      of_all += busy;
      of_slowest = std::max(of_slowest, busy);
      once = std::max(once, at([&](const StageUse& use) {
                        return use.other + use.collective * rounds_of(s) + streaming_seconds(use, s);
                      }));
      bytes = std::max(bytes, at([&](const StageUse& use) {
                         return fullest_tile(use, micro_batches_in_flight(s, stage), state_elsewhere(s));
                       }));
    }
    const double times = s.micro_batches;
    const double passes =
        s.pipeline == PipelineKind::sequential ? times * of_all : of_all + (times - 1) * of_slowest;
    return PretrainingCost{.seconds = once + passes,
                           .fullest_tile_bytes = static_cast<uint64_t>(bytes),
                           .fits = bytes <= static_cast<double>(plan_.tile_bytes)};
  }

  /// The share of the optimizer's state that the tiles of a replica do not hold.
  static double state_elsewhere(const PretrainingSettings& s) {
    if (s.offload_from) return 1;
    return s.shard_from ? 1 - 1.0 / s.replicas : 0;
  }

  /// Rounds of a ring of its replicas, relative to those of the small networks' replicas.
  double rounds_of(const PretrainingSettings& s) const {
    const auto sent = [](uint32_t replicas) { return 1 - 1.0 / replicas; };
    if (s.replicas == 1) return 0;
    return sent(s.replicas) / sent(machine_.chips() / (smallest_factor(s.stages) * chips_of_stage(s)));
  }

  /// Of reading and writing the optimizer's state once.
  double streaming_seconds(const StageUse& use, const PretrainingSettings& s) const {
    const double rate = machine_.model().streaming_bytes_per_second * chips_of_stage(s);
    if (!s.offload_from || rate == 0) return 0;
    double bytes = 0;
    for (const TileUse& tile : use.tiles) bytes += tile.optimizer;
    return 2 * bytes / (s.shard_from ? s.replicas : 1U) / rate;
  }

  const std::optional<SmallNetworks>& small_networks(const SmallNetworkKey& key) {
    const auto [found, is_new] = small_.try_emplace(key);
    std::optional<SmallNetworks>& networks = found->second;
    if (!is_new) return networks;
    report(fmt::format("small networks on {} stages of {} chips, micro-batches of {} packs", key.stages,
                       key.chips, key.packs));
    const bool alone = (options_.threads == 0 ? default_threads() : options_.threads) == 1;
    try {
      auto two = std::async(alone ? std::launch::deferred : std::launch::async,
                            [this, key] { return small_network(key, 2); });
      SmallNetwork one = small_network(key, 1);
      networks = SmallNetworks{std::move(one), two.get()};
      plan_.small_estimates += 2;
    } catch (const UsageError&) {
      throw;
    } catch (const Error&) {  // an operation does not fit
    }
    return networks;
  }

  /// The replicas take all chips, so that their sums take the links that they take in a whole network.
  SmallNetwork small_network(const SmallNetworkKey& key, uint32_t of_stage) const {
    PretrainingSettings s = undivided();
    s.config.num_hidden_layers = key.stages * of_stage;
    s.stages = key.stages;
    s.replicas = machine_.chips() / (key.stages * key.chips);
    s.recompute = key.recompute;
    s.micro_batches = packs() / s.replicas / key.packs;
    if (s.stages > 1) {
      s = in_pipeline(std::move(s), PipelineKind::one_forward_one_backward, offload_activations_from_);
      s.micro_batches = 2 * (s.stages + 1);  // twice as many as are in flight
    }
    const RunCost cost = graph::estimate(step_graph(s, key.packs), machine_);
    return {stage_use(cost, 0, s, machine_.clock_hz()),
            stage_use(cost, s.stages - 1, s, machine_.clock_hz())};
  }

  void report(const std::string& next) {
    if (options_.progress) options_.progress(std::min(done_, most_estimates_), most_estimates_, next);
    ++done_;
  }

  /// Without figures, if an operation alone does not fit.
  PretrainingCost estimate(const PretrainingSettings& s) {
    report("a whole network");
    try {
      return estimate_of(s);
    } catch (const UsageError&) {
      throw;
    } catch (const Error& e) {
      return {.overflow = e.what()};
    }
  }

  PretrainingCost estimate_of(const PretrainingSettings& s) const {
    const BertTrainer trainer = BertTrainer::for_estimates(s, text_, machine_, options_.threads);
    const RunCost &step = trainer.step_cost(), &evaluation = trainer.evaluation_cost();
    const std::string& overflow = step.overflow.empty() ? evaluation.overflow : step.overflow;
    return {.seconds = step.seconds,
            .fullest_tile_bytes = std::max(step.fullest_tile_bytes, evaluation.fullest_tile_bytes),
            .fits = overflow.empty(),
            .overflow = overflow,
            .streaming_bytes = std::max(streaming_bytes_of(step), streaming_bytes_of(evaluation))};
  }

  /// Whether small networks tell what a division takes, which need not be among those considered.
  bool can_extrapolate(const PretrainingSettings& s) const {
    const bool is_whole = s.stage_feed_forwards.empty() && s.head_layers == 0;
    const bool is_in_chips = machine_.chips() % (uint64_t{s.replicas} * s.stages) == 0;
    return is_whole && is_in_chips && !is_placed_freely(s) && s.pipeline != PipelineKind::grouped;
  }

  /// A division that the machine cannot have does not fit it; others may.
  void estimate_given() {
    PretrainingDivision given{settings_, {}, {}};
    try {
      given.estimated = estimate(settings_);
    } catch (const UsageError& e) {
      given.estimated = PretrainingCost{.overflow = e.what()};
    }
    if (given.estimated->has_figures() && can_extrapolate(settings_))
      given.extrapolated = extrapolated(settings_);
    plan_.estimated.push_back(std::move(given));
  }

  void require_any() const {
    if (!found_.empty()) return;
    throw Error(fmt::format(
        "there is no way to divide {} layers, batches of {} packs and parameters of {} bytes among "
        "the {} chips of {}: a batch of more packs, or a machine with more memory would help",
        layers(), packs(), parameter_bytes_, machine_.chips(), machine_.name()));
  }

  void find_frontier() {
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (const PretrainingDivision& division : found_)
      if (division.extrapolated->fullest_tile_bytes < least) {
        least = division.extrapolated->fullest_tile_bytes;
        plan_.frontier.push_back(division);
      }
  }

  void estimate_best() {
    const std::string given = options_.compare ? json_of(settings_).dump() : "";
    double factor = 1;  // of the bytes that were extrapolated
    for (uint32_t i = 0; i < options_.estimates; ++i) {
      PretrainingDivision* next = most_promising(factor);
      if (next == nullptr) return;
      const bool is_given = json_of(next->settings).dump() == given;
      next->estimated = is_given ? plan_.estimated[0].estimated : estimate(next->settings);
      factor = std::max(factor, static_cast<double>(next->estimated->fullest_tile_bytes) /
                                    static_cast<double>(next->extrapolated->fullest_tile_bytes));
      if (!is_given) plan_.estimated.push_back(*next);
    }
  }

  /// The fastest that may fit and be faster than what does; if none may, the smallest. Null: nothing is left.
  PretrainingDivision* most_promising(double factor) {
    choose();
    const double best = plan_.chosen ? plan_.estimated[*plan_.chosen].estimated->seconds
                                     : std::numeric_limits<double>::infinity();
    for (PretrainingDivision& division : found_) {
      const PretrainingCost& cost = *division.extrapolated;
      if (cost.seconds >= best) return nullptr;
      const double bytes = factor * static_cast<double>(cost.fullest_tile_bytes);
      if (!division.estimated && bytes <= static_cast<double>(plan_.tile_bytes)) return &division;
    }
    if (plan_.chosen) return nullptr;
    PretrainingDivision& least = *std::ranges::min_element(
        found_, {}, [](const auto& division) { return division.extrapolated->fullest_tile_bytes; });
    return least.estimated ? nullptr : &least;
  }

  /// Chooses the fastest of those estimated that fits, or says how far the closest is.
  void choose() {
    const std::vector<PretrainingDivision>& all = plan_.estimated;
    plan_.chosen.reset();
    plan_.overflow.clear();
    if (all.empty()) return;
    for (size_t i = 0; i < all.size(); ++i) {
      const PretrainingCost& cost = *all[i].estimated;
      if (cost.fits && (!plan_.chosen || cost.seconds < all[*plan_.chosen].estimated->seconds))
        plan_.chosen = i;
    }
    if (plan_.chosen) return;
    const auto closest = std::ranges::min_element(all, {}, [](const PretrainingDivision& division) {
      return std::pair(!division.estimated->has_figures(), division.estimated->fullest_tile_bytes);
    });
    const PretrainingCost& cost = *closest->estimated;
    plan_.overflow = fmt::format("no division of {} that were considered fits; {}: {}", found_.size(),
                                 lacking(cost), cost.overflow);
  }

  /// How far from fitting the closest division is.
  std::string lacking(const PretrainingCost& cost) const {
    if (!cost.has_figures()) return "the closest has no estimate";
    if (cost.fullest_tile_bytes > plan_.tile_bytes)
      return fmt::format("in the closest the fullest tile lacks {} bytes",
                         cost.fullest_tile_bytes - plan_.tile_bytes);
    if (const uint64_t has = machine_.model().streaming_bytes; cost.streaming_bytes > has)
      return fmt::format("in the closest the streaming memory of a chip lacks {} bytes",
                         cost.streaming_bytes - has);
    return "in the closest the gaps between operands are too large";
  }

  std::optional<uint64_t> offload_activations_from_;  ///< of pipelines
  PretrainingSettings settings_;
  const TextSplit& text_;
  const Machine& machine_;
  const PretrainingPlanOptions& options_;
  graph::BertBatch shape_ = {};  ///< of one pack
  uint64_t parameter_bytes_ = 0;
  size_t done_ = 0, most_estimates_ = 0;
  std::map<SmallNetworkKey, std::optional<SmallNetworks>> small_;
  std::vector<PretrainingDivision> found_;  ///< in the end by their extrapolated seconds
  PretrainingPlan plan_;
};

}  // namespace
}  // namespace train

PretrainingPlan plan_pretraining(const PretrainingSettings& settings, const TextSplit& text,
                                 const Machine& machine, const PretrainingPlanOptions& options) {
  if (machine.is_host())
    throw UsageError("a plan is of a modelled machine, and this is the host: name one, such as pod16");
  if (settings.phases.size() != 1)
    throw UsageError(fmt::format("a plan is of packs of one length, and there are {}: plan each by itself",
                                 settings.phases.size()));
  if (!settings.groups.empty())
    throw UsageError(
        "a plan is extrapolated from networks of fewer layers, which may lack what groups of parameters "
        "name: "
        "leave them out (--place)");
  if (settings.shard_weights_from)
    throw UsageError(
        "a plan does not extrapolate parameters that are divided among replicas: leave that out "
        "(--shard-weights)");
  return train::PretrainingPlanner(settings, text, machine, options).find();
}

}  // namespace tessera
