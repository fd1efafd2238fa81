// Pipelines: in which order the stages of a graph work on micro-batches, as data that can be printed, checked
// and analysed.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::graph {

/// The schedules of a pipeline of S stages. A stage holds the activations of all micro-batches that are "in
/// flight" there: the forward pass is done, the backward pass is not.
enum class PipelineKind : uint8_t {
  /// One micro-batch at a time: one stage works, the others wait.
  sequential,
  /// All stages run forward passes at once, then all run backward passes, as PopART's grouped schedule. Stage
  /// s has 2(S − s) − 1 micro-batches in flight; the number of micro-batches is a multiple of 2S.
  grouped,
  /// Each stage alternates forward and backward passes from its first micro-batch on, as PopART's interleaved
  /// schedule. Stage s has S − s micro-batches in flight.
  interleaved,
  /// "1f1b": each stage runs forward as early as S − s micro-batches in flight allow, then alternates
  /// (Narayanan et al. 2019, PipeDream; 2021).
  one_forward_one_backward,
  /// "zb-h1" (Qi et al. 2024, zero bubble pipeline parallelism): as 1f1b, with backward passes in two: one
  /// for gradients of inputs, which other stages wait for, and later, where the stage would wait, one for
  /// gradients of weights. Each stage has at most S micro-batches in flight, until the second one.
  zero_bubble,
};
std::string_view name_of(PipelineKind kind);
/// Throws UsageError, listing the names, for names other than sequential, grouped, interleaved, 1f1b and
/// zb-h1.
PipelineKind pipeline_named(std::string_view name);
/// Whether gradients of inputs and of weights have passes of their own.
constexpr bool splits_backward(PipelineKind kind) { return kind == PipelineKind::zero_bubble; }
/// Whether stages hold several micro-batches in flight.
constexpr bool has_several_in_flight(PipelineKind kind) { return kind != PipelineKind::sequential; }

/// How micro-batches pass through the stages of a graph.
struct Pipeline {
  PipelineKind kind = PipelineKind::sequential;
  /// Stages that keep only the inputs of a forward pass, which other stages send, and compute the pass again
  /// before the backward pass.
  std::set<uint32_t> recomputed = {};
  /// Smallest number of elements for which values that stages keep for later passes, of several micro-batches
  /// in flight, lie in streaming memory where a machine has tiles: a pass stores them, and later passes fetch
  /// them. Only for pipelines with has_several_in_flight().
  std::optional<uint64_t> offload_from = {};

  bool operator==(const Pipeline&) const = default;
};

enum class PassKind : uint8_t {
  forward,
  recomputed,
  backward,         ///< gradients of inputs and weights
  backward_input,   ///< gradients of inputs, and everything else that other stages wait for
  backward_weight,  ///< the rest of the gradients
};
std::string_view name_of(PassKind kind);
/// A pass of one micro-batch through one stage.
struct StagePass {
  PassKind kind = PassKind::forward;
  uint32_t stage = 0;
  uint32_t micro_batch = 0;

  bool operator==(const StagePass&) const = default;
};

/// The passes of a pipeline in time slots of about equal length. Stages work at the same time in a slot; the
/// results of a pass are sent to other stages at the end of its slot.
struct PipelineSchedule {
  uint32_t stages = 1;
  uint32_t micro_batches = 1;
  std::vector<std::vector<StagePass>> slots = {};

  /// The passes of a stage in their order.
  std::vector<StagePass> of_stage(uint32_t stage) const;
};

/// Throws UsageError for offloaded micro-batches in flight of a pipeline that does not have several.
void check_offload(const Pipeline& pipeline);

/// Throws UsageError as check_offload(), and for no stages or micro-batches, more than 2^24 passes of
/// micro-batches through stages in one direction, a grouped schedule whose number of micro-batches is not a
/// multiple of twice the number of stages, and recomputed stages that do not exist.
PipelineSchedule pipeline_schedule(const Pipeline& pipeline, uint32_t stages, uint32_t micro_batches);

/// Throws UsageError, naming the pass, unless every micro-batch passes each stage forward and backward once,
/// in one or two passes; forward after the previous stage and backward after the next one, in an earlier
/// slot; and in order.
void check(const PipelineSchedule& schedule);

/// Times of one micro-batch in one stage, in seconds or any other unit.
struct StageTimes {
  double forward = 1;
  double backward = 2;  ///< if split into passes for gradients of inputs and of weights, half for each
};

/// A pass with the times at which it begins and ends.
struct TimedPass {
  StagePass pass = {};
  double begin = 0;
  double end = 0;
};

/// The passes of a schedule in its order, if each begins as soon as its stage and its inputs are ready, and
/// sending takes no time. A recomputed pass takes as long as the forward pass. Throws UsageError unless there
/// are times for each stage, above 0.
std::vector<TimedPass> timed(const PipelineSchedule& schedule, std::span<const StageTimes> times);

struct PipelineAnalysis {
  double time = 0;                       ///< until the last pass ends
  double used = 0;                       ///< fraction of the stages' time in which they work
  std::vector<uint32_t> in_flight = {};  ///< largest number of micro-batches in flight, by stage
  std::vector<double> busy = {};         ///< time in which each stage works
};

/// The time, use and memory of a schedule whose passes run as timed() says.
PipelineAnalysis analyse(const PipelineSchedule& schedule, std::span<const StageTimes> times);

/// A line for each stage, a column for each slot: F3 is the forward pass of micro-batch 3, B3 its backward
/// pass, or I3 and W3 for gradients of inputs and weights, and R3 its recomputed pass. Dots are slots in
/// which a stage waits.
std::string to_string(const PipelineSchedule& schedule);

}  // namespace tessera::graph
