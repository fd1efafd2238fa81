// When the passes and actions of pipelines run, and what that means for their stages.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "graph/pipeline_actions.h"

namespace tessera::graph {
namespace {

void check_stage_times(uint32_t stages, std::span<const StageTimes> times) {
  if (times.size() != stages)
    throw UsageError(fmt::format("there are times of {} stages; the schedule has {}", times.size(), stages));
  for (const StageTimes& of_stage : times)
    for (const double time : {of_stage.forward, of_stage.backward})
      if (!(std::isfinite(time) && time > 0))
        throw UsageError(fmt::format("a pass through a stage takes {}; it must take a time above 0", time));
}

double time_of(ActionKind pass, const StageTimes& times) {
  switch (pass) {
    case ActionKind::backward: return times.backward;
    case ActionKind::backward_input:
    case ActionKind::backward_weight: return times.backward / 2;
    default: return times.forward;
  }
}

/// Whether it is the last pass of a micro-batch through its stage.
bool is_last_pass(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_weight;
}

/// Gathers what an analysis says of timed passes, in their order.
class PassGathering {
 public:
  explicit PassGathering(uint32_t stages) : in_flight_(stages) {
    found_.in_flight.resize(stages);
    found_.busy.resize(stages);
  }

  /// `is_last`: whether it is the last pass of a micro-batch through its stage.
  void add(ActionKind kind, uint32_t stage, double begin, double end, bool is_last) {
    found_.time = std::max(found_.time, end);
    if (!is_pass(kind)) return;
    found_.busy[stage] += end - begin;
    uint32_t& in_flight = in_flight_[stage];
    if (kind == ActionKind::forward) found_.in_flight[stage] = std::max(found_.in_flight[stage], ++in_flight);
    if (is_last && in_flight > 0) --in_flight;
  }

  PipelineAnalysis finish(uint32_t places) {
    double busy = 0;
    for (const double of_stage : found_.busy) busy += of_stage;
    if (found_.time > 0) found_.used = busy / (found_.time * places);
    return std::move(found_);
  }

 private:
  PipelineAnalysis found_;
  std::vector<uint32_t> in_flight_;
};

/// Which stages have passes for gradients of inputs, and of weights. The program of a network may have only
/// one of the two.
class StageHalves {
 public:
  explicit StageHalves(const ActionList& list) : input_(list.stages), weight_(list.stages) {
    for (const PipelineAction& action : list.actions) {
      if (action.kind == ActionKind::backward_input) input_[action.stage] = true;
      if (action.kind == ActionKind::backward_weight) weight_[action.stage] = true;
    }
  }

  double time(const PipelineAction& pass, const StageTimes& times) const {
    const bool is_half = input_[pass.stage] && weight_[pass.stage];
    return time_of(pass.kind > ActionKind::backward && !is_half ? ActionKind::backward : pass.kind, times);
  }
  bool is_last(const PipelineAction& action) const {
    return is_last_pass(action.kind) || (action.kind == ActionKind::backward_input && !weight_[action.stage]);
  }

 private:
  std::vector<bool> input_, weight_;  ///< by stage
};

}  // namespace

std::vector<TimedPass> timed(const PipelineSchedule& schedule, std::span<const StageTimes> times) {
  check_stage_times(schedule.stages, times);
  check(schedule);
  std::vector<TimedPass> passes;
  std::vector<double> clocks(schedule.stages);
  // When the forward and backward pass of a micro-batch ended, by stage.
  std::vector<std::vector<double>> forward(schedule.stages, std::vector<double>(schedule.micro_batches));
  std::vector<std::vector<double>> backward = forward;
  for (const std::vector<StagePass>& slot : schedule.slots)
    for (const StagePass& pass : slot) {
      const auto [kind, s, m] = pass;
      double& clock = clocks[s];
      const double takes = time_of(action_kind(kind), times[s]);
      if (kind == PassKind::forward && s > 0) clock = std::max(clock, forward[s - 1][m]);
      const bool goes_back = kind == PassKind::backward || kind == PassKind::backward_input;
      if (goes_back && s + 1 < schedule.stages) clock = std::max(clock, backward[s + 1][m]);
      passes.push_back({pass, clock, clock + takes});
      clock += takes;
      if (kind == PassKind::forward) forward[s][m] = clock;
      if (goes_back) backward[s][m] = clock;
    }
  return passes;
}

PipelineAnalysis analyse(const PipelineSchedule& schedule, std::span<const StageTimes> times) {
  PassGathering passes(schedule.stages);
  for (const auto& [pass, begin, end] : timed(schedule, times))
    passes.add(action_kind(pass.kind), pass.stage, begin, end, is_last_pass(action_kind(pass.kind)));
  return passes.finish(schedule.stages);
}

std::vector<TimedAction> timed(const ActionList& list, std::span<const StageTimes> times, double sending) {
  check_stage_times(list.stages, times);
  if (!(std::isfinite(sending) && sending >= 0))
    throw UsageError(fmt::format("sending takes {}; it must take a time of at least 0", sending));
  check(list);
  std::vector<TimedAction> all;
  std::vector<double> clocks(list.places());
  const StageHalves halves(list);
  const RouteIndex routes(list.links.routes);
  std::map<std::pair<size_t, uint32_t>, TimedAction> sent;  // by route and micro-batch
  for (const PipelineAction& action : list.actions) {
    double& clock = clocks[list.links.places[action.stage]];
    double begin = clock;
    if (is_pass(action.kind)) {
      clock += halves.time(action, times[action.stage]);
    } else if (is_sending(action.kind)) {
      double& other = clocks[list.links.places[action.peer]];
      begin = std::max(clock, other);
      clock = other = begin + sending;
      sent[{routes.of(action), action.micro_batch}] = {action, begin, clock};
    } else if (is_receiving(action.kind)) {
      const TimedAction& send = sent.at({routes.of(action), action.micro_batch});
      all.push_back({action, send.begin, send.end});
      continue;
    }
    all.push_back({action, begin, clock});
  }
  return all;
}

PipelineAnalysis analyse(const ActionList& list, std::span<const StageTimes> times, double sending) {
  PassGathering passes(list.stages);
  const std::vector<TimedAction> actions = timed(list, times, sending);
  const StageHalves halves(list);
  for (const auto& [action, begin, end] : actions)
    passes.add(action.kind, action.stage, begin, end, halves.is_last(action));
  const std::set<uint32_t> places(list.links.places.begin(), list.links.places.end());
  return passes.finish(static_cast<uint32_t>(places.size()));
}

}  // namespace tessera::graph
