// What the chips of a pipeline do, action by action: the list that a program follows, which can be printed,
// read, checked and analysed without running it.
#pragma once

#include <tessera/pipeline.h>

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::graph {

/// Actions by their names in torch.distributed.pipelining, which has no R.
enum class ActionKind : uint8_t {
  forward,           ///< "F"
  recomputed,        ///< "R": the forward pass again, before the backward pass
  backward,          ///< "B": gradients of inputs and of weights in one pass, as torch's FULL_BACKWARD
  backward_input,    ///< "I": gradients of inputs
  backward_weight,   ///< "W": gradients of weights
  send_forward,      ///< "SEND_F": a result of a forward pass, or a value that it passes on, goes to chips of
                     ///< another stage
  receive_forward,   ///< "RECV_F": the other end of the same exchange
  send_backward,     ///< "SEND_B"
  receive_backward,  ///< "RECV_B"
  reduce_gradients,  ///< "REDUCE_GRAD": the sum of a stage's gradients over replicas begins
};
std::string_view name_of(ActionKind kind);
/// Passes come first among actions, in the order of their kinds.
constexpr bool is_pass(ActionKind kind) { return kind <= ActionKind::backward_weight; }
constexpr ActionKind action_kind(PassKind kind) { return static_cast<ActionKind>(kind); }

struct PipelineAction {
  ActionKind kind = ActionKind::forward;
  uint32_t stage = 0;
  uint32_t micro_batch = 0;
  uint32_t peer = 0;  ///< for a SEND, the receiving stage; for a RECV, the sending stage
  /// For a REDUCE_GRAD over all micro-batches: its position in StageLinks::buckets. Without one, the
  /// gradients of each micro-batch are summed, within its backward pass.
  std::optional<uint32_t> bucket = {};

  bool operator==(const PipelineAction&) const = default;
};

/// "0F3": the forward pass of micro-batch 3 through stage 0; "0SEND_F3", "1RECV_F3". The other end is named
/// where it is no neighbour: "0SEND_F3>2", "2RECV_F3<0". "0REDUCE_GRAD:1" sums bucket 1, "0REDUCE_GRAD3"
/// micro-batch 3.
std::string to_string(const PipelineAction& action);

/// A value that passes of one stage send to the chips of another, for each micro-batch.
struct StageRoute {
  uint32_t from = 0;             ///< the stage whose passes compute it, or pass it on
  uint32_t to = 0;               ///< the first stage there that takes it
  bool after_backward = false;   ///< whether backward passes send it
  bool before_backward = false;  ///< whether backward passes are the first that take it

  bool operator==(const StageRoute&) const = default;
};

/// Gradients that one collective sums over replicas.
struct GradientBucket {
  std::vector<uint32_t> stages = {};  ///< stages to which the gradients belong
  uint64_t bytes = 0;                 ///< bytes of a replica's gradients

  bool operator==(const GradientBucket&) const = default;
};

/// The places of stages, and the values that their passes send and sum.
struct StageLinks {
  std::vector<uint32_t> places = {};      ///< by stage: the part of the chips
  std::vector<StageRoute> routes = {};    ///< between parts of the chips
  std::set<uint32_t> summed_in_passes{};  ///< stages that sum gradients of each micro-batch over replicas
  std::vector<GradientBucket> buckets = {};

  bool operator==(const StageLinks&) const = default;
};

/// The links of a chain: forward passes send to the next stage, backward passes to the previous one, unless
/// they lie on the same chips. With replicas, the gradients of each stage are a bucket. Without places, each
/// stage has chips of its own.
StageLinks chain_of_stages(uint32_t stages, std::vector<uint32_t> places = {}, bool has_replicas = false);

/// The actions of all chips, in the order of a program: chips run those that they take part in, in this
/// order, and both ends of an exchange wait for each other.
struct ActionList {
  uint32_t stages = 1;
  uint32_t micro_batches = 1;
  StageLinks links = {};
  std::vector<PipelineAction> actions = {};

  /// Number of parts of the chips.
  uint32_t places() const;
  /// The actions of a part of the chips, or of a stage, in their order.
  std::vector<PipelineAction> of_place(uint32_t place) const;
  std::vector<PipelineAction> of_stage(uint32_t stage) const;

  bool operator==(const ActionList&) const = default;
};

/// The actions of a schedule. Each slot has its passes, followed by their exchanges. A bucket is summed once
/// the last backward pass has added to it. Throws UsageError unless each stage has a place, and for passes
/// through stages that do not exist.
ActionList actions_of(const PipelineSchedule& schedule, StageLinks links);

/// Throws UsageError, naming the two actions, if one comes before another on which it depends: a pass before
/// a RECV, a RECV before its SEND, a SEND before its pass, a backward pass before its forward or recomputed
/// pass, W before I, or a REDUCE_GRAD before a backward pass; also for actions that are missing, occur twice,
/// or lie outside of the stages, micro-batches and routes. A stage may have B for some micro-batches, and I
/// and W for others.
void check(const ActionList& list);

/// A line for each part of the chips: "chips 0: 0F0 0SEND_F0 …".
std::string to_string(const ActionList& list);

/// Reads what to_string() writes, or lines of actions with spaces or commas between them, as
/// torch.distributed.pipelining writes to files, in an order in which chips can run them. Bytes of buckets
/// are not known. Throws UsageError for other text, for chips that wait for each other, and as check() does.
ActionList read_actions(std::string_view text);

/// An action with the times at which it begins and ends.
struct TimedAction {
  PipelineAction action = {};
  double begin = 0;
  double end = 0;
};

/// The actions in their order, if each begins as soon as its chips, and the chips at the other end of an
/// exchange, have finished the actions before it. Sending takes `sending`, in the unit of the times; sums
/// over replicas take no time, as they run beside later actions. Throws UsageError as check() does, for a
/// negative time of sending, and unless there are times for each stage, above 0.
std::vector<TimedAction> timed(const ActionList& list, std::span<const StageTimes> times, double sending = 0);

/// As for a schedule, but stages that lie on the same chips share their time, and sending counts as waiting.
PipelineAnalysis analyse(const ActionList& list, std::span<const StageTimes> times, double sending = 0);

}  // namespace tessera::graph
