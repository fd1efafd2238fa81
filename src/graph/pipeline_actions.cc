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

constexpr bool is_backward(PassKind kind) {
  return kind != PassKind::forward && kind != PassKind::recomputed;
}

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

/// Lists what slots have.
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

/// Follows a list action by action.
class ListProgress {
 public:
  explicit ListProgress(const ActionList& list)
      : list_(list),
        sent_(list.links.routes.size(), std::vector<bool>(list.micro_batches)),
        received_(sent_),
        summed_(list.links.buckets.size()) {
    for (Passes& passes : passes_) {
      passes.done.resize(list.stages);
      passes.left.resize(list.stages);
    }
    for (const PipelineAction& action : list.actions)
      if (is_pass(action.kind) && action.stage < list.stages) ++passes_of(action.kind).left[action.stage];
  }

  void follow() {
    for (const PipelineAction& action : list_.actions) follow(action);
    require_all_passes();
    require_all_links();
  }

 private:
  struct Passes {
    std::vector<std::vector<bool>> done = {};  ///< by stage and micro-batch; empty before the first pass
    std::vector<uint64_t> left = {};           ///< by stage: those in the rest of the list
  };
  Passes& passes_of(ActionKind kind) { return passes_.at(static_cast<size_t>(kind)); }
  /// Whether the list has passes of that kind through a stage.
  bool has(ActionKind kind, uint32_t stage) const {
    const Passes& passes = passes_.at(static_cast<size_t>(kind));
    return passes.left[stage] > 0 || !passes.done[stage].empty();
  }
  /// The pass that gives what a stage sends back.
  ActionKind backward_of(uint32_t stage) const {
    return has(ActionKind::backward_input, stage) ? ActionKind::backward_input : ActionKind::backward;
  }

  void follow(const PipelineAction& action) {
    if (action.stage >= list_.stages) reject(action, fmt::format("and {} stages", list_.stages));
    if (!action.bucket && action.micro_batch >= list_.micro_batches)
      reject(action, fmt::format("and {} micro-batches", list_.micro_batches));
    if (is_pass(action.kind)) return follow_pass(action);
    if (action.kind == ActionKind::reduce_gradients) return follow_sum(action);
    const size_t route = route_of(list_.links, action);
    if (route == list_.links.routes.size()) reject(action, "and no such route between stages");
    if (list_.links.places[action.stage] == list_.links.places[action.peer])
      reject(action, "between stages on the same chips");
    is_sending(action.kind) ? follow_send(action, route) : follow_receive(action, route);
  }

  void follow_pass(const PipelineAction& action) {
    if (action.kind != ActionKind::forward) require_pass(action, ActionKind::forward);
    if (action.kind >= ActionKind::backward) require_pass(action, ActionKind::recomputed);
    if (action.kind == ActionKind::backward_weight) require_pass(action, ActionKind::backward_input);
    if (action.kind != ActionKind::recomputed) require_received(action, action.kind != ActionKind::forward);
    Passes& passes = passes_of(action.kind);
    std::vector<bool>& done = passes.done[action.stage];
    done.resize(list_.micro_batches);
    mark(action, done);
    --passes.left[action.stage];
  }

  void follow_send(const PipelineAction& action, size_t route) {
    const bool after_backward = list_.links.routes[route].after_backward;
    require_done(action, after_backward ? backward_of(action.stage) : ActionKind::forward);
    mark(action, sent_[route]);
  }

  void follow_receive(const PipelineAction& action, size_t route) {
    if (!sent_[route][action.micro_batch]) reject_before(action, other_end(action));
    mark(action, received_[route]);
  }

  void follow_sum(const PipelineAction& action) {
    if (!action.bucket) {
      if (!list_.links.summed_in_passes.contains(action.stage))
        reject(action, "and a stage whose gradients are summed after the last micro-batch");
      const bool splits = has(ActionKind::backward_weight, action.stage);
      return require_done(action, splits ? ActionKind::backward_weight : ActionKind::backward);
    }
    const uint32_t b = *action.bucket;
    if (b >= summed_.size() || std::ranges::count(list_.links.buckets[b].stages, action.stage) == 0)
      reject(action, "and no such bucket");
    for (const uint32_t stage : list_.links.buckets[b].stages)
      for (const ActionKind kind :
           {ActionKind::backward, ActionKind::backward_input, ActionKind::backward_weight})
        if (passes_of(kind).left[stage] > 0)
          reject(action, fmt::format("before the last backward pass of stage {}", stage));
    if (!summed_[b].insert(action.stage).second) reject(action, "twice");
  }

  void require_done(const PipelineAction& action, ActionKind kind) {
    const std::vector<bool>& done = passes_of(kind).done[action.stage];
    if (done.empty() || !done[action.micro_batch])
      reject_before(action, {kind, action.stage, action.micro_batch});
  }
  /// If the stage has passes of that kind at all.
  void require_pass(const PipelineAction& action, ActionKind kind) {
    if (has(kind, action.stage)) require_done(action, kind);
  }
  void require_received(const PipelineAction& pass, bool backward) const {
    for (size_t r = 0; r < received_.size(); ++r) {
      const StageRoute& route = list_.links.routes[r];
      if (route.to == pass.stage && route.before_backward == backward && !received_[r][pass.micro_batch])
        reject_before(pass, receive_of(route, pass.micro_batch));
    }
  }
  static void mark(const PipelineAction& action, std::vector<bool>& done) {
    if (done[action.micro_batch]) reject(action, "twice");
    done[action.micro_batch] = true;
  }

  void require_all_passes() const {
    for (size_t kind = 0; kind < kPassKinds; ++kind)
      for (uint32_t stage = 0; stage < list_.stages; ++stage) {
        const std::vector<bool>& done = passes_[kind].done[stage];
        const auto missing = std::ranges::find(done, false);
        if (missing != done.end())
          reject_without(
              {static_cast<ActionKind>(kind), stage, static_cast<uint32_t>(missing - done.begin())});
      }
  }
  void require_all_links() const {
    for (size_t r = 0; r < received_.size(); ++r)
      for (uint32_t m = 0; m < list_.micro_batches; ++m)
        if (!received_[r][m]) reject_without(receive_of(list_.links.routes[r], m));
    for (uint32_t b = 0; b < summed_.size(); ++b)
      for (const uint32_t stage : list_.links.buckets[b].stages)
        if (!summed_[b].contains(stage)) reject_without({ActionKind::reduce_gradients, stage, 0, 0, b});
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
  std::array<Passes, kPassKinds> passes_ = {};
  std::vector<std::vector<bool>> sent_, received_;  ///< by route and micro-batch
  std::vector<std::set<uint32_t>> summed_;          ///< by bucket: the stages that have its sum
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

size_t route_of(const StageLinks& links, const PipelineAction& action) {
  const PipelineAction sent = is_sending(action.kind) ? action : other_end(action);
  const auto found = std::ranges::find_if(
      links.routes, [&](const StageRoute& route) { return send_of(route, action.micro_batch) == sent; });
  return static_cast<size_t>(found - links.routes.begin());
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
