// Lists of actions of pipelines: how they follow from schedules, and whether they can run.
#include "graph/pipeline_actions.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "graph/stages.h"

namespace tessera::graph {
namespace {

constexpr size_t kPassKinds = 5;
static_assert(action_kind(PassKind::backward_weight) == ActionKind::backward_weight);

ActionKind kind_of_other_end(ActionKind kind) {
  switch (kind) {
    case ActionKind::send_forward: return ActionKind::receive_forward;
    case ActionKind::receive_forward: return ActionKind::send_forward;
    case ActionKind::send_backward: return ActionKind::receive_backward;
    case ActionKind::receive_backward: return ActionKind::send_backward;
    default: return kind;
  }
}

void check_links(const StageLinks& links, uint32_t stages) {
  constexpr uint32_t kMostPlaces = 1 << 20;  // as many as tiles of the largest machine
  if (links.places.size() != stages)
    throw UsageError(fmt::format("{} stages are placed; there are {}", links.places.size(), stages));
  for (const uint32_t place : links.places)
    if (place >= kMostPlaces)
      throw UsageError(fmt::format("a stage is placed on part {} of the chips; the last part is {}", place,
                                   kMostPlaces - 1));
  const auto require_stage = [&](uint32_t stage, std::string_view what) {
    if (stage >= stages)
      throw UsageError(fmt::format("a {} names stage {}; the stages are 0 to {}", what, stage, stages - 1));
  };
  for (const StageRoute& route : links.routes)
    for (const uint32_t stage : {route.from, route.to}) require_stage(stage, "route");
  for (const GradientBucket& bucket : links.buckets)
    for (const uint32_t stage : bucket.stages) require_stage(stage, "bucket of gradients");
}

/// Lists the actions of slots.
class ActionLister {
 public:
  ActionLister(const PipelineSchedule& schedule, StageLinks links)
      : list_{schedule.stages, schedule.micro_batches, std::move(links), {}} {
    std::vector<uint64_t> backward(schedule.stages);
    splits_.resize(schedule.stages);
    for (const std::vector<StagePass>& slot : schedule.slots)
      for (const StagePass& pass : slot) {
        if (pass.stage >= schedule.stages)
          throw UsageError(fmt::format("a schedule has a pass through stage {}; the stages are 0 to {}",
                                       pass.stage, schedule.stages - 1));
        if (is_backward(pass.kind)) ++backward[pass.stage];
        if (pass.kind == PassKind::backward_weight) splits_[pass.stage] = true;
      }
    for (const GradientBucket& bucket : list_.links.buckets) {
      uint64_t& passes = left_.emplace_back(0);
      for (const uint32_t stage : bucket.stages) passes += backward[stage];
    }
  }

  void add(const std::vector<StagePass>& slot) {
    for (const StagePass& pass : slot) {
      list_.actions.push_back({action_kind(pass.kind), pass.stage, pass.micro_batch});
      if (is_backward(pass.kind)) add_sums_after(pass);
    }
    for (const StagePass& pass : slot)
      if (pass.kind != PassKind::recomputed && pass.kind != PassKind::backward_weight) add_sendings_of(pass);
  }

  ActionList release() { return std::move(list_); }

 private:
  void add_sums_after(const StagePass& pass) {
    const StageLinks& links = list_.links;
    const bool is_last = pass.kind == PassKind::backward_weight || !splits_[pass.stage];
    if (is_last && links.summed_in_passes.contains(pass.stage))
      list_.actions.push_back({ActionKind::reduce_gradients, pass.stage, pass.micro_batch});
    for (uint32_t b = 0; b < left_.size(); ++b) {
      const std::vector<uint32_t>& stages = links.buckets[b].stages;
      const auto of_stage = static_cast<uint64_t>(std::ranges::count(stages, pass.stage));
      if (of_stage == 0 || (left_[b] -= of_stage) > 0) continue;
      for (const uint32_t stage : stages)
        list_.actions.push_back({ActionKind::reduce_gradients, stage, 0, 0, b});
    }
  }

  void add_sendings_of(const StagePass& pass) {
    for (const StageRoute& route : list_.links.routes) {
      if (route.from != pass.stage || route.after_backward != is_backward(pass.kind)) continue;
      list_.actions.push_back(send_of(route, pass.micro_batch));
      list_.actions.push_back(receive_of(route, pass.micro_batch));
    }
  }

  ActionList list_;
  std::vector<uint64_t> left_;  ///< by bucket: backward passes that have yet to add to it
  std::vector<bool> splits_;    ///< by stage: whether gradients of weights have passes of their own
};

/// Micro-batches, which mostly come one after the other.
class MicroBatches {
 public:
  bool contains(uint32_t m) const { return m < first_missing_ || later_.contains(m); }
  bool is_empty() const { return first_missing_ == 0 && later_.empty(); }
  uint32_t first_missing() const { return first_missing_; }
  /// Returns false if it is already among them.
  bool add(uint32_t m) {
    if (m < first_missing_ || !later_.insert(m).second) return false;
    while (later_.erase(first_missing_) > 0) ++first_missing_;
    return true;
  }

 private:
  uint32_t first_missing_ = 0;
  std::set<uint32_t> later_ = {};
};

/// Follows a list action by action.
class ListProgress {
 public:
  explicit ListProgress(const ActionList& list)
      : list_(list),
        backward_left_(list.stages),
        routes_(list.links.routes),
        routes_to_(list.stages),
        sent_(list.links.routes.size()),
        received_(list.links.routes.size()),
        has_all_gradients_(list.links.buckets.size()) {
    for (size_t r = 0; r < list.links.routes.size(); ++r) routes_to_[list.links.routes[r].to].push_back(r);
    for (const GradientBucket& bucket : list.links.buckets)
      unsummed_.emplace_back(bucket.stages.begin(), bucket.stages.end());
    for (size_t kind = 0; kind < kPassKinds; ++kind) {
      has_[kind].resize(list.stages);
      done_[kind].resize(list.stages);
    }
    for (const PipelineAction& action : list.actions) {
      if (!is_pass(action.kind) || action.stage >= list.stages) continue;
      has_[static_cast<size_t>(action.kind)][action.stage] = true;
      if (is_backward(action.kind)) ++backward_left_[action.stage];
    }
  }

  void follow() {
    for (const PipelineAction& action : list_.actions) follow(action);
    require_all_passes();
    require_all_links();
  }

 private:
  /// Whether the list has passes of that kind through a stage.
  bool has(ActionKind kind, uint32_t stage) const { return has_[static_cast<size_t>(kind)][stage]; }
  /// The micro-batches that have passed. Gradients of inputs and of weights may be in one pass.
  MicroBatches& done(ActionKind kind, uint32_t stage) { return done_[static_cast<size_t>(kind)][stage]; }
  /// The pass of that kind as the list has it.
  PipelineAction pass_of(ActionKind kind, uint32_t stage, uint32_t micro_batch) const {
    const bool is_in_one = is_backward(kind) && !has(kind, stage);
    return {is_in_one ? ActionKind::backward : kind, stage, micro_batch};
  }

  void follow(const PipelineAction& action) {
    if (action.stage >= list_.stages) reject(action, fmt::format("and {} stages", list_.stages));
    if (!action.bucket && action.micro_batch >= list_.micro_batches)
      reject(action, fmt::format("and {} micro-batches", list_.micro_batches));
    if (is_pass(action.kind)) return follow_pass(action);
    if (action.kind == ActionKind::reduce_gradients) return follow_sum(action);
    const size_t route = routes_.of(action);
    if (route == list_.links.routes.size()) reject(action, "and no such route between stages");
    if (list_.links.places[action.stage] == list_.links.places[action.peer])
      reject(action, "between stages on the same chips");
    is_sending(action.kind) ? follow_send(action, route) : follow_receive(action, route);
  }

  void follow_pass(const PipelineAction& action) {
    if (action.kind != ActionKind::forward) require_pass(action, ActionKind::forward);
    if (is_backward(action.kind)) require_pass(action, ActionKind::recomputed);
    if (action.kind == ActionKind::backward_weight) require_pass(action, ActionKind::backward_input);
    if (action.kind != ActionKind::recomputed) require_received(action, is_backward(action.kind));
    if (is_backward(action.kind)) --backward_left_[action.stage];
    if (action.kind != ActionKind::backward) return mark(action, done(action.kind, action.stage));
    for (const ActionKind half : {ActionKind::backward_input, ActionKind::backward_weight})
      mark(action, done(half, action.stage));
  }

  void follow_send(const PipelineAction& action, size_t route) {
    const bool after_backward = list_.links.routes[route].after_backward;
    require_done(action, after_backward ? ActionKind::backward_input : ActionKind::forward);
    mark(action, sent_[route]);
  }

  void follow_receive(const PipelineAction& action, size_t route) {
    if (!sent_[route].contains(action.micro_batch)) reject_before(action, other_end(action));
    mark(action, received_[route]);
  }

  void follow_sum(const PipelineAction& action) {
    if (!action.bucket) {
      if (!list_.links.summed_in_passes.contains(action.stage))
        reject(action, "and a stage whose gradients are summed after the last micro-batch");
      return require_done(action, ActionKind::backward_weight);
    }
    const uint32_t b = *action.bucket;
    if (b >= unsummed_.size()) reject(action, "and no such bucket");
    const std::vector<uint32_t>& stages = list_.links.buckets[b].stages;
    if (unsummed_[b].erase(action.stage) == 0)
      reject(action, std::ranges::count(stages, action.stage) == 0 ? "and no such bucket" : "twice");
    if (has_all_gradients_[b]) return;
    for (const uint32_t stage : stages)
      if (backward_left_[stage] > 0)
        reject(action, fmt::format("before the last backward pass of stage {}", stage));
    has_all_gradients_[b] = true;
  }

  void require_done(const PipelineAction& action, ActionKind kind) {
    if (!done(kind, action.stage).contains(action.micro_batch))
      reject_before(action, pass_of(kind, action.stage, action.micro_batch));
  }
  /// Requires the pass if the stage has passes of that kind at all.
  void require_pass(const PipelineAction& action, ActionKind kind) {
    if (has(kind, action.stage)) require_done(action, kind);
  }
  void require_received(const PipelineAction& pass, bool backward) const {
    for (const size_t r : routes_to_[pass.stage]) {
      const StageRoute& route = list_.links.routes[r];
      if (route.before_backward == backward && !received_[r].contains(pass.micro_batch))
        reject_before(pass, receive_of(route, pass.micro_batch));
    }
  }
  static void mark(const PipelineAction& action, MicroBatches& passed) {
    if (!passed.add(action.micro_batch)) reject(action, "twice");
  }

  void require_all_passes() const {
    for (size_t kind = 0; kind < kPassKinds; ++kind)
      for (uint32_t stage = 0; stage < list_.stages; ++stage)
        if (const MicroBatches& passed = done_[kind][stage];
            !passed.is_empty() && passed.first_missing() < list_.micro_batches)
          reject_without(pass_of(static_cast<ActionKind>(kind), stage, passed.first_missing()));
  }
  void require_all_links() const {
    for (size_t r = 0; r < received_.size(); ++r)
      if (const uint32_t m = received_[r].first_missing(); m < list_.micro_batches)
        reject_without(receive_of(list_.links.routes[r], m));
    for (uint32_t b = 0; b < unsummed_.size(); ++b)
      if (const std::set<uint32_t>& stages = unsummed_[b]; !stages.empty())
        reject_without({ActionKind::reduce_gradients, *stages.begin(), 0, 0, b});
  }

  [[noreturn]] static void reject(const PipelineAction& action, std::string_view why) {
    throw UsageError(fmt::format("a list of actions has {} {}", to_string(action), why));
  }
  [[noreturn]] static void reject_before(const PipelineAction& action, const PipelineAction& needed) {
    reject(action, fmt::format("before {}, on which it depends: move it behind that", to_string(needed)));
  }
  [[noreturn]] static void reject_without(const PipelineAction& action) {
    throw UsageError(
        fmt::format("a list of actions has no {}: add it, or leave out all of its kind", to_string(action)));
  }

  const ActionList& list_;
  std::array<std::vector<bool>, kPassKinds> has_ = {};           ///< by kind of pass and stage
  std::array<std::vector<MicroBatches>, kPassKinds> done_ = {};  ///< the same
  std::vector<uint64_t> backward_left_;  ///< by stage: backward passes in the rest of the list
  RouteIndex routes_;
  std::vector<std::vector<size_t>> routes_to_;  ///< by stage: positions of the routes that end there
  std::vector<MicroBatches> sent_, received_;   ///< by route
  std::vector<bool> has_all_gradients_;         ///< by bucket, once a sum of it has begun
  std::vector<std::set<uint32_t>> unsummed_;    ///< by bucket: the stages that do not have its sum yet
};

}  // namespace

PipelineAction other_end(PipelineAction action) {
  std::swap(action.stage, action.peer);
  action.kind = kind_of_other_end(action.kind);
  return action;
}

PipelineAction send_of(const StageRoute& route, uint32_t micro_batch) {
  return {route.after_backward ? ActionKind::send_backward : ActionKind::send_forward, route.from,
          micro_batch, route.to};
}

PipelineAction receive_of(const StageRoute& route, uint32_t micro_batch) {
  return other_end(send_of(route, micro_batch));
}

void RouteIndex::add(const StageRoute& route) {
  positions_.try_emplace(Key(route.after_backward, route.from, route.to), count_);
  ++count_;
}

size_t RouteIndex::of(const PipelineAction& action) const {
  const PipelineAction sent = is_sending(action.kind) ? action : other_end(action);
  const auto found = positions_.find(Key(sent.kind == ActionKind::send_backward, sent.stage, sent.peer));
  return found == positions_.end() ? count_ : found->second;
}

StageLinks chain_of_stages(uint32_t stages, std::vector<uint32_t> places, bool has_replicas) {
  if (places.empty()) {
    places.resize(stages);
    std::iota(places.begin(), places.end(), 0U);
  } else {
    check_places(places);
  }
  StageLinks links{std::move(places), {}, {}, {}};
  check_links(links, stages);
  for (uint32_t s = 0; s + 1 < stages; ++s) {
    if (links.places[s] == links.places[s + 1]) continue;
    links.routes.push_back({s, s + 1, false, false});
    links.routes.push_back({s + 1, s, true, true});
  }
  if (has_replicas)
    for (uint32_t s = stages; s-- > 0;) links.buckets.push_back({{s}, 0});  // in the order of their sums
  return links;
}

uint32_t ActionList::places() const {
  return links.places.empty() ? 0 : *std::ranges::max_element(links.places) + 1;
}

std::vector<PipelineAction> ActionList::of_place(uint32_t place) const {
  std::vector<PipelineAction> own;
  std::ranges::copy_if(actions, std::back_inserter(own),
                       [&](const PipelineAction& action) { return links.places.at(action.stage) == place; });
  return own;
}

std::vector<PipelineAction> ActionList::of_stage(uint32_t stage) const {
  std::vector<PipelineAction> own;
  std::ranges::copy_if(actions, std::back_inserter(own),
                       [&](const PipelineAction& action) { return action.stage == stage; });
  return own;
}

ActionList actions_of(const PipelineSchedule& schedule, StageLinks links) {
  check_links(links, schedule.stages);
  ActionLister lister(schedule, std::move(links));
  for (const std::vector<StagePass>& slot : schedule.slots) lister.add(slot);
  return lister.release();
}

void check(const ActionList& list) {
  check_links(list.links, list.stages);
  ListProgress(list).follow();
}

}  // namespace tessera::graph
