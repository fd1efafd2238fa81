#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/pipeline.h>
#include <tessera/pretraining_plan.h>
#include <tessera/run_cost.h>
#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "io/json_text.h"
#include "machine/model/machine.h"
#include "train/bert/extrapolation.h"
#include "train/bert/network.h"
#include "train/bert/settings.h"
#include "train/trainer_impl.h"

namespace tessera {
namespace train {
namespace {

using graph::PipelineKind;
using graph::RunCost;

/// The fraction of the time limit within which estimates of small networks may begin.
constexpr double kShareOfSmallNetworks = 0.5;

/// Larger micro-batches are not tried after this number of sizes in a row that were not faster by at least
/// this fraction, if there are faster divisions that fit.
constexpr uint32_t kMostSizesInVain = 2;
constexpr double kLeastGainOfSize = 0.02;

/// Sets of ways to save memory, other than recomputation.
using Savings = uint32_t;
constexpr Savings kShard = 1, kOffload = 2, kShardWeights = 4, kOffloadWeights = 8, kOffloadGradients = 16,
                  kOffloadActivations = 32, kHeadSlices = 64;
/// These are considered even if a division fits without them: they take little time.
constexpr Savings kOfState = kShard | kOffload;

bool is_within(Savings part, Savings all) { return (part & ~all) == 0; }

/// Bytes of the chip that has most in its streaming memory.
uint64_t streaming_bytes_of(const RunCost& cost) {
  if (cost.chips.empty()) return cost.streaming_bytes;
  return std::ranges::max_element(cost.chips, {}, &graph::ChipCost::streaming_bytes)->streaming_bytes;
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

/// Does not offload activations if none are in flight, nor sums over micro-batches if there is only one.
PretrainingSettings as_divided(PretrainingSettings s) {
  if (!graph::has_several_in_flight(s.pipeline)) s.offload_activations_from.reset();
  if (s.micro_batches == 1) s.offload_gradients_from.reset();
  return s;
}

/// The factors by which estimates exceeded extrapolated memory, which may apply to other divisions too.
class Growth {
 public:
  void add(const PretrainingCost& extrapolated, const PretrainingCost& estimated) {
    const auto grow = [](double& growth, uint64_t from, uint64_t to) {
      if (from != 0) growth = std::max(growth, static_cast<double>(to) / static_cast<double>(from));
    };
    grow(tile_, extrapolated.fullest_tile_bytes, estimated.fullest_tile_bytes);
    if (estimated.lacking_streaming_bytes > 0)
      grow(streaming_, extrapolated.streaming_bytes, estimated.streaming_bytes);
  }
  bool may_fit(const PretrainingCost& extrapolated, uint64_t tile_bytes, uint64_t streaming_bytes) const {
    const auto fits = [](double growth, uint64_t needed, uint64_t has) {
      return growth * static_cast<double>(needed) <= static_cast<double>(has);
    };
    return fits(tile_, extrapolated.fullest_tile_bytes, tile_bytes) &&
           fits(streaming_, extrapolated.streaming_bytes, streaming_bytes);
  }

 private:
  double tile_ = 1, streaming_ = 1;
};

class PretrainingPlanner {
 public:
  PretrainingPlanner(const PretrainingSettings& settings, const TextSplit& text, const Machine& machine,
                     const PretrainingPlanOptions& options)
      : settings_(with_vocabulary(as_divided(settings), text)),
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
    parameter_bytes_ = count_parameters(pretraining_graph(undivided(settings_), shape_)) *
                       size_of(numbers_of(settings_).parameters);
    extrapolation_.emplace(settings_, shape_, machine, options.large, options.threads,
                           [this](const std::string& name) {
                             return (found_.empty() || has_time(kShareOfSmallNetworks)) && goes_on(name);
                           });
    most_estimates_ = options_.estimates + (options_.compare ? 3 : 2) + small_networks_on(1);
  }
  PretrainingPlanner(const PretrainingPlanner&) = delete;
  PretrainingPlanner& operator=(const PretrainingPlanner&) = delete;

  PretrainingPlan find() {
    start_ = Clock::now();
    if (options_.compare) estimate_given();
    const uint32_t chips = machine_.chips();
    for (uint32_t each = 1; each <= chips && wants_stages_on(each); ++each)
      if (chips % each == 0) consider_stages_on(each);
    plan_.considered = found_.size();
    plan_.small_estimates = extrapolation_->estimates();
    std::ranges::stable_sort(found_, {}, [](const PretrainingDivision& division) {
      return std::pair(division.extrapolated->seconds, division.extrapolated->fullest_tile_bytes);
    });
    require_any();
    find_frontier();
    if (!plan_.stopped) estimate_best();
    choose();
    split_backward();
    recompute_less();
    return std::move(plan_);
  }

 private:
  uint32_t layers() const { return settings_.config.num_hidden_layers; }
  uint32_t packs() const { return settings_.phases[0].packs; }
  uint32_t packs_of_micro_batch(const PretrainingSettings& s) const {
    return packs() / s.micro_batches / s.replicas;
  }
  /// Whether the chips are left to the placement of graphs, which compares several.
  bool is_placed_freely(const PretrainingSettings& s) const {
    return s.replicas == 1 && s.stages == 1 && machine_.chips() > 1;
  }

  bool wants_stages_on(uint32_t chips) const {
    if (std::ranges::any_of(found_, [](const auto& division) { return division.extrapolated->fits; }))
      return false;
    return chips <= options_.chips_per_stage || found_.empty();
  }

  /// Whether the replicas' tiles can hold parameters that they divide, or parameters may lie elsewhere.
  bool may_hold_parameters() const {
    const uint64_t bytes = uint64_t{machine_.tiles()} * machine_.tile_bytes();
    return machine_.model().streaming_bytes > 0 || parameter_bytes_ <= bytes;
  }
  /// Whether the tiles of the chips can hold all parameters and gradients of the same size, and nothing else.
  bool hold_parameters(uint32_t chips) const {
    const uint64_t tiles = uint64_t{chips} * machine_.tiles() / machine_.chips();
    return 2 * parameter_bytes_ <= tiles * machine_.tile_bytes();
  }
  /// Calls visit(stages, replicas) for all divisions with this number of chips per stage that can hold the
  /// parameters. Divisions that need not save memory for parameters come first: they may fit, and then only
  /// faster ones are wanted.
  template <class Visit>
  void each_way(uint32_t chips, const Visit& visit) const {
    const uint32_t parts = machine_.chips() / chips;
    const bool is_free = parts == 1 && chips > 1;
    if (is_free || !may_hold_parameters()) return;
    for (const bool has_room : {true, false})
      for (uint32_t stages = 1; stages <= std::min(parts, layers()); ++stages)
        if (parts % stages == 0 && packs() % (parts / stages) == 0 &&
            hold_parameters(stages * chips) == has_room)
          visit(stages, parts / stages);
  }
  /// Calls visit(packs) for sizes of micro-batches, the smallest first, until it returns false.
  template <class Visit>
  void each_size(uint32_t replicas, const Visit& visit) const {
    const uint32_t of_replica = packs() / replicas;
    for (uint32_t size = 1; size <= of_replica; ++size)
      if (of_replica % size == 0 && !visit(size)) return;
  }

  PretrainingSettings divided(uint32_t stages, uint32_t replicas, uint32_t size, bool recompute) const {
    PretrainingSettings s = undivided(settings_);
    s.stages = stages;
    s.replicas = replicas;
    s.recompute = recompute;
    s.micro_batches = packs() / replicas / size;
    return s;
  }

  /// Maximum number of pairs of small networks that are needed for stages on this number of chips.
  size_t small_networks_on(uint32_t chips) const {
    std::set<SmallNetworkKey> keys;
    each_way(chips, [&](uint32_t stages, uint32_t replicas) {
      for (const bool recompute : {false, true})
        each_size(replicas, [&](uint32_t size) {
          PretrainingSettings s = divided(stages, replicas, size, recompute);
          if (stages > 1) s.pipeline = PipelineKind::one_forward_one_backward;
          const std::vector<SmallNetworkKey> of_all =
              extrapolation_->keys_of(with_savings(s, possible_savings(s)));
          keys.insert(of_all.begin(), of_all.end());
          return true;
        });
    });
    return keys.size();
  }

  /// Divisions that save more memory come last, when the speed of divisions that fit without is known.
  void consider_stages_on(uint32_t chips) {
    for (const bool saves : {false, true})
      each_way(chips, [&](uint32_t stages, uint32_t replicas) {
        for (const bool recompute : {false, true}) consider_sizes(stages, replicas, recompute, saves);
      });
  }

  void consider_sizes(uint32_t stages, uint32_t replicas, bool recompute, bool saves) {
    double least = std::numeric_limits<double>::infinity();
    uint32_t in_vain = 0;
    each_size(replicas, [&](uint32_t size) {  // larger ones do not fit where smaller ones do not
      const PretrainingSettings s = divided(stages, replicas, size, recompute);
      if (!consider(s, saves)) return false;
      if (!saves) return true;
      const double seconds = seconds_without_savings(s);
      in_vain = seconds < (1 - kLeastGainOfSize) * least ? 0 : in_vain + 1;
      least = std::min(least, seconds);
      return in_vain < kMostSizesInVain || seconds <= (1 + options_.margin) * fastest_;
    });
  }

  /// Calls visit(settings) for all layers of stages, and orders of passes.
  template <class Visit>
  void each_order(PretrainingSettings s, const Visit& visit) const {
    for (const std::vector<uint32_t>& of_stages : divisions_of_layers(layers(), s.stages))
      for (const PipelineKind pipeline : {PipelineKind::sequential, PipelineKind::one_forward_one_backward}) {
        if (pipeline != PipelineKind::sequential && s.stages == 1) continue;
        s.stage_layers = of_stages;
        s.pipeline = pipeline;
        visit(s);
      }
  }

  /// Returns whether larger micro-batches may be worth trying.
  bool consider(const PretrainingSettings& division, bool saves) {
    bool is_worth_more = false;
    each_order(division, [&](const PretrainingSettings& s) {
      is_worth_more |= saves ? consider_savings(s) : consider_places_of_state(s);
    });
    return is_worth_more;
  }

  /// Seconds of the fastest order.
  double seconds_without_savings(const PretrainingSettings& division) {
    double least = std::numeric_limits<double>::infinity();
    each_order(division, [&](const PretrainingSettings& s) {
      if (const std::optional<PretrainingCost> cost = extrapolation_->cost_of(s))
        least = std::min(least, cost->seconds);
    });
    return least;
  }

  bool consider_places_of_state(const PretrainingSettings& s) {
    const Savings possible = possible_savings(s) & kOfState;
    bool fits = false;
    for (Savings savings = 0; savings <= possible; ++savings)
      if (is_within(savings, possible)) fits |= consider_with(s, savings);
    return fits;
  }

  /// Considers more savings, but none beyond sets that fit. Returns whether larger micro-batches may fit, or
  /// be faster than divisions whose savings need not be considered.
  bool consider_savings(const PretrainingSettings& s) {
    const Savings possible = possible_savings(s);
    std::vector<Savings> fitting;
    for (Savings savings = 0; savings <= possible; ++savings) {  // subsets come before their supersets
      if (!is_within(savings, possible)) continue;
      const bool is_new = !is_within(savings, kOfState);
      const bool is_needless = std::ranges::any_of(fitting, [&](Savings f) { return is_within(f, savings); });
      if (is_new && is_needless) continue;
      const bool fits = is_new ? consider_with(s, savings) : fits_with(s, savings);
      if (fits) fitting.push_back(savings);
      if (savings == 0 && !may_be_fastest(s)) return extrapolation_->cost_of(s).has_value();
    }
    return !fitting.empty();
  }

  /// The savings that are possible on this machine, and may save some memory.
  Savings possible_savings(const PretrainingSettings& s) const {
    Savings possible = 0;
    if (s.replicas > 1) possible |= kShard | kShardWeights;
    if (machine_.model().streaming_bytes > 0) {
      possible |= kOffload | kOffloadWeights;
      if (s.micro_batches > 1) possible |= kOffloadGradients;
      if (s.micro_batches > 1 && graph::has_several_in_flight(s.pipeline)) possible |= kOffloadActivations;
    }
    // Slices keep a second gradient of the table, which is as large as the logits of this number of tokens.
    const uint64_t predicted = uint64_t{shape_.predictions} * packs_of_micro_batch(s);
    if (predicted > 2 * uint64_t{settings_.config.hidden_size}) possible |= kHeadSlices;
    return possible;
  }

  PretrainingSettings with_savings(PretrainingSettings s, Savings savings) const {
    const auto from = [&](Savings saving) {
      return (savings & saving) != 0 ? std::optional(options_.large) : std::nullopt;
    };
    s.shard_from = from(kShard);
    s.shard_weights_from = from(kShardWeights);
    s.offload_from = from(kOffload);
    s.offload_weights_from = from(kOffloadWeights);
    s.offload_gradients_from = from(kOffloadGradients);
    s.offload_activations_from = from(kOffloadActivations);
    const uint32_t slices = settings_.head_slices > 1 ? settings_.head_slices : options_.head_slices;
    s.head_slices = (savings & kHeadSlices) != 0 ? slices : 1;
    return s;
  }

  bool fits_with(const PretrainingSettings& s, Savings savings) {
    const std::optional<PretrainingCost> cost = extrapolation_->cost_of(with_savings(s, savings));
    return cost && cost->fits;
  }

  /// Whether a division would be faster than all that fit, if it fitted.
  bool may_be_fastest(const PretrainingSettings& s) {
    const std::optional<PretrainingCost> cost = extrapolation_->cost_of(s);
    return cost && cost->seconds <= (1 + options_.margin) * fastest_;
  }

  bool consider_with(const PretrainingSettings& plain, Savings savings) {
    PretrainingSettings s = with_savings(plain, savings);
    std::optional<PretrainingCost> cost = extrapolation_->cost_of(s);
    if (!cost) return false;
    const bool fits = cost->fits;
    if (fits) fastest_ = std::min(fastest_, cost->seconds);
    found_.push_back({std::move(s), std::move(cost), {}});
    return fits;
  }

  /// Whether another estimate may begin within this fraction of the time limit.
  bool has_time(double share) {
    if (options_.time_limit == 0 || seconds_since(start_) < share * options_.time_limit) return true;
    plan_.out_of_time = true;
    return false;
  }

  /// Reports the next estimate; returns whether the search continues.
  bool goes_on(const std::string& next) {
    if (plan_.stopped) return false;
    if (options_.progress)
      plan_.stopped = !options_.progress(std::min(done_, most_estimates_), most_estimates_, next);
    ++done_;
    return !plan_.stopped;
  }

  /// The cost has no figures if a single operation does not fit; none if the search has been stopped.
  std::optional<PretrainingCost> estimate(const PretrainingSettings& s) {
    if (!goes_on("a whole network")) return {};
    try {
      return estimate_of(s);
    } catch (const UsageError&) {
      throw;
    } catch (const Error& e) {
      return PretrainingCost{.overflow = e.what()};
    }
  }

  PretrainingCost estimate_of(const PretrainingSettings& s) const {
    const BertTrainer trainer = BertTrainer::for_estimates(s, text_, machine_, options_.threads);
    const RunCost &step = trainer.step_cost(), &evaluation = trainer.evaluation_cost();
    const std::string& overflow = step.overflow.empty() ? evaluation.overflow : step.overflow;
    return with_lack({.seconds = step.seconds,
                      .fullest_tile_bytes = std::max(step.fullest_tile_bytes, evaluation.fullest_tile_bytes),
                      .fits = overflow.empty(),
                      .overflow = overflow,
                      .streaming_bytes = std::max(streaming_bytes_of(step), streaming_bytes_of(evaluation))},
                     machine_);
  }

  /// Whether the cost of a division can be extrapolated from small networks; it need not be among the
  /// considered divisions.
  bool can_extrapolate(const PretrainingSettings& s) const {
    const bool is_whole = s.stage_feed_forwards.empty() && s.head_layers == 0;
    const bool is_in_chips = machine_.chips() % (uint64_t{s.replicas} * s.stages) == 0;
    const bool is_like_small = s.pipeline != PipelineKind::grouped && !graph::splits_backward(s.pipeline);
    return is_whole && is_in_chips && !is_placed_freely(s) && !s.memory_budget && is_like_small;
  }

  /// A division that the machine cannot run counts as one that does not fit; others may.
  std::optional<PretrainingCost> estimate_if_possible(const PretrainingSettings& s) {
    try {
      return estimate(s);
    } catch (const UsageError& e) {
      return PretrainingCost{.overflow = e.what()};
    }
  }

  void estimate_given() {
    PretrainingDivision given{settings_, {}, estimate_if_possible(settings_)};
    if (!given.estimated) return;
    start_ = Clock::now();
    if (given.estimated->has_figures() && can_extrapolate(settings_))
      given.extrapolated = extrapolation_->cost_of(settings_);
    plan_.estimated.push_back(std::move(given));
  }

  void require_any() const {
    if (!found_.empty() || plan_.stopped) return;
    throw Error(fmt::format(
        "there is no way to divide {} layers, batches of {} packs and parameters of {} bytes among "
        "the {} chips of {}: a batch of more packs, or a machine with more memory would help",
        layers(), packs(), parameter_bytes_, machine_.chips(), machine_.name()));
  }

  /// The fraction of memory that a division needs: of a tile, or of streaming memory, whichever is larger.
  double need_of(const PretrainingCost& cost) const {
    const auto share = [](uint64_t needed, uint64_t has) {
      return needed == 0 ? 0 : static_cast<double>(needed) / static_cast<double>(has);
    };
    return std::max(share(cost.fullest_tile_bytes, plan_.tile_bytes),
                    share(cost.streaming_bytes, machine_.model().streaming_bytes));
  }

  void find_frontier() {
    uint64_t least = std::numeric_limits<uint64_t>::max();
    double least_need = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < found_.size(); ++i) {
      const PretrainingCost& cost = *found_[i].extrapolated;
      if (cost.fullest_tile_bytes < least) {
        least = cost.fullest_tile_bytes;
        plan_.frontier.push_back(found_[i]);
      }
      if (const double need = need_of(cost); need < least_need) {
        least_need = need;
        frontier_.push_back(i);
      }
    }
  }

  void estimate_best() {
    const std::string given = options_.compare ? io::json_text(json_of(settings_)) : "";
    Growth growth;
    for (uint32_t left = options_.estimates; left > 0;) {
      PretrainingDivision* next = most_promising(growth);
      if (next == nullptr) return;
      const bool is_given = io::json_text(json_of(next->settings)) == given;
      if (!is_given && left < options_.estimates && !has_time(1)) return;
      next->estimated = is_given ? plan_.estimated[0].estimated : estimate(next->settings);
      if (!next->estimated) return;
      if (!is_given) --left;
      growth.add(*next->extrapolated, *next->estimated);
      if (!is_given) plan_.estimated.push_back(*next);
    }
  }

  /// The fastest division that may fit and be faster than the best one that fits, or slower by at most the
  /// margin; if none may, one that may come closest to fitting. Null: nothing is left.
  PretrainingDivision* most_promising(const Growth& growth) {
    choose();
    const double best = plan_.chosen ? plan_.estimated[*plan_.chosen].estimated->seconds
                                     : std::numeric_limits<double>::infinity();
    for (PretrainingDivision& division : found_) {
      const PretrainingCost& cost = *division.extrapolated;
      if (cost.seconds > (1 + options_.margin) * best) return nullptr;
      if (!division.estimated && growth.may_fit(cost, plan_.tile_bytes, machine_.model().streaming_bytes))
        return &division;
    }
    return plan_.chosen ? nullptr : closest();
  }

  /// The division that is closest to fitting and not estimated, if it may be closer than the estimated ones.
  PretrainingDivision* closest() {
    double least = std::numeric_limits<double>::infinity();
    for (const PretrainingDivision& division : plan_.estimated)
      if (division.estimated->has_figures()) least = std::min(least, need_of(*division.estimated));
    for (auto i = frontier_.rbegin(); i != frontier_.rend(); ++i)
      if (!found_[*i].estimated) return need_of(*found_[*i].extrapolated) < least ? &found_[*i] : nullptr;
    return nullptr;
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
    const auto best = std::ranges::min_element(all, {}, [this](const PretrainingDivision& division) {
      return std::pair(!division.estimated->has_figures(), need_of(*division.estimated));
    });
    const PretrainingCost& cost = *best->estimated;
    plan_.overflow = fmt::format("no division of {} that were considered fits; {}: {}", found_.size(),
                                 lacking(cost), cost.overflow);
  }

  /// How long stages wait with and without passes for gradients of weights depends on more than the times of
  /// passes, so extrapolation cannot tell which is faster: the fastest 1f1b pipeline is tried as zb-h1.
  void split_backward() {
    if (!plan_.chosen || plan_.stopped) return;
    const PretrainingDivision* fastest = fastest_pipeline();
    if (fastest == nullptr || !has_time(1)) return;
    PretrainingSettings s = fastest->settings;
    s.pipeline = PipelineKind::zero_bubble;
    if (!is_estimated(s)) estimate_variant(std::move(s));
  }

  /// Whether a division has been estimated as a whole, such as the given one.
  bool is_estimated(const PretrainingSettings& s) const {
    const std::string text = io::json_text(json_of(s));
    return std::ranges::any_of(plan_.estimated, [&](const PretrainingDivision& division) {
      return io::json_text(json_of(division.settings)) == text;
    });
  }

  /// Of the divisions that fit and are slower than the fastest by at most the margin, the fastest one with a
  /// 1f1b pipeline; null: there is none.
  const PretrainingDivision* fastest_pipeline() const {
    const double limit = (1 + options_.margin) * plan_.estimated[*plan_.chosen].estimated->seconds;
    const PretrainingDivision* fastest = nullptr;
    for (const PretrainingDivision& division : plan_.estimated) {
      const PretrainingSettings& s = division.settings;
      const PretrainingCost& cost = *division.estimated;
      const bool may_wait = s.pipeline == PipelineKind::one_forward_one_backward && s.micro_batches > 1;
      if (may_wait && cost.fits && cost.seconds <= limit &&
          (fastest == nullptr || cost.seconds < fastest->estimated->seconds))
        fastest = &division;
    }
    return fastest;
  }

  /// If all layers are recomputed, recomputing fewer may suffice.
  void recompute_less() {
    if (!plan_.chosen || plan_.stopped) return;
    PretrainingSettings s = plan_.estimated[*plan_.chosen].settings;
    if (!s.recompute || !has_time(1)) return;
    s.recompute = false;
    s.memory_budget = graph::kMachineMemory;
    estimate_variant(std::move(s));
  }

  /// Estimates a division that is not among those extrapolated.
  void estimate_variant(PretrainingSettings s) {
    std::optional<PretrainingCost> cost = estimate_if_possible(s);
    if (!cost) return;
    plan_.estimated.push_back({std::move(s), {}, std::move(cost)});
    choose();
  }

  /// How much memory the closest division lacks.
  std::string lacking(const PretrainingCost& cost) const {
    if (!cost.has_figures()) return "the closest has no estimate";
    if (cost.lacking_tile_bytes > 0)
      return fmt::format("in the closest the fullest tile lacks {} bytes", cost.lacking_tile_bytes);
    if (cost.lacking_streaming_bytes > 0)
      return fmt::format("in the closest the streaming memory of a chip lacks {} bytes",
                         cost.lacking_streaming_bytes);
    return "in the closest the gaps between operands are too large";
  }

  PretrainingSettings settings_;
  const TextSplit& text_;
  const Machine& machine_;
  const PretrainingPlanOptions& options_;
  graph::BertBatch shape_ = {};  ///< of one pack
  uint64_t parameter_bytes_ = 0;
  size_t done_ = 0, most_estimates_ = 0;
  Clock::time_point start_ = {};  ///< of the search, for its limit of time
  std::optional<StepExtrapolation> extrapolation_;
  std::vector<PretrainingDivision> found_;                    ///< in the end by their extrapolated seconds
  std::vector<size_t> frontier_;                              ///< of those found
  double fastest_ = std::numeric_limits<double>::infinity();  ///< of those that fit, extrapolated
  PretrainingPlan plan_;
};

}  // namespace
}  // namespace train

PretrainingPlan plan_pretraining(const PretrainingSettings& settings, const TextSplit& text,
                                 const Machine& machine, const PretrainingPlanOptions& options) {
  if (!(options.time_limit >= 0))  // nor NaN
    throw UsageError(fmt::format("a time limit is 0 (none) or more seconds, not {}", options.time_limit));
  if (!(options.margin >= 0))
    throw UsageError(fmt::format("a margin is a fraction of 0 or more, not {}", options.margin));
  if (machine.is_host())
    throw UsageError("a plan is for a modelled machine, not for the host: name one, such as pod16");
  if (settings.phases.size() != 1)
    throw UsageError(fmt::format("a plan is of packs of one length, and there are {}: plan each by itself",
                                 settings.phases.size()));
  if (!settings.groups.empty())
    throw UsageError(
        "a plan is extrapolated from networks of fewer layers, which may lack what groups of parameters "
        "name: "
        "leave them out (--place)");
  if (settings.shard_gradients_from)
    throw UsageError(
        "a plan does not extrapolate sums of gradients that are divided among replicas: leave that out "
        "(--shard-gradients)");
  return train::PretrainingPlanner(settings, text, machine, options).find();
}

}  // namespace tessera
