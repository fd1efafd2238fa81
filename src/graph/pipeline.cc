// Schedules of pipelines.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/pipeline.h>
#include <tessera/run_cost.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/names.h"

namespace tessera::graph {
namespace {

constexpr base::Names<PipelineKind, 5> kPipelines{"pipeline",
                                                  {"sequential", "grouped", "interleaved", "1f1b", "zb-h1"}};
constexpr uint64_t kMostPasses = 1 << 24;  // forward, of all stages

std::string to_string(const StagePass& pass) {
  constexpr std::string_view kLetters = "FRBIW";
  return fmt::format("{}{}", kLetters.at(static_cast<size_t>(pass.kind)), pass.micro_batch);
}

/// Puts passes into slots.
class Slots {
 public:
  Slots(const Pipeline& pipeline, uint32_t stages, uint32_t micro_batches)
      : recomputed_(pipeline.recomputed), stages_(stages), micro_batches_(micro_batches) {}

  PipelineSchedule release() { return {stages_, micro_batches_, std::move(slots_)}; }

  /// Puts the passes of micro-batch m through stage s into the slots forward(s, m) and backward(s, m).
  template <class Forward, class Backward>
  void fill(const Forward& forward, const Backward& backward) {
    for (uint32_t m = 0; m < micro_batches_; ++m)
      for (uint32_t s = 0; s < stages_; ++s) {
        put(forward(s, m), {PassKind::forward, s, m});
        put_backward(backward(s, m), s, m);
      }
    for (std::vector<StagePass>& slot : slots_)
      std::ranges::stable_sort(slot, {}, [](const StagePass& pass) { return pass.stage; });
    std::erase_if(slots_, [](const std::vector<StagePass>& slot) { return slot.empty(); });
  }

  /// Each stage runs at most stages − s micro-batches ahead of its backward passes, which come first where
  /// they can.
  void fill_one_forward_one_backward() {
    std::vector<uint32_t> forward(stages_), backward(stages_);  // micro-batches that have passed
    while (backward[0] < micro_batches_) {
      const std::vector<uint32_t> had_forward = forward, had_backward = backward;
      std::vector<StagePass>& slot = slots_.emplace_back();
      const auto slot_number = static_cast<uint32_t>(slots_.size() - 1);
      for (uint32_t s = 0; s < stages_; ++s) {
        const bool is_last = s + 1 == stages_;
        const uint32_t returned = is_last ? had_forward[s] : had_backward[s + 1];
        const uint32_t arrived = s == 0 ? micro_batches_ : had_forward[s - 1];
        const bool is_full = forward[s] - backward[s] == stages_ - s || forward[s] == micro_batches_;
        if (is_full && backward[s] < returned) {
          put_backward(slot_number, s, backward[s]++);
        } else if (!is_full && forward[s] < arrived) {
          slot.push_back({PassKind::forward, s, forward[s]++});
        }
      }
    }
  }

  /// The same order of forward passes and of gradients of inputs. Gradients of weights come where a stage has
  /// nothing else to do, or has `stages` micro-batches without them.
  void fill_zero_bubble() {
    std::vector<uint32_t> forward(stages_), input(stages_),
        weight(stages_);  // micro-batches that have passed
    while (std::ranges::any_of(weight, [&](uint32_t passed) { return passed < micro_batches_; })) {
      const std::vector<uint32_t> had_forward = forward, had_input = input;
      std::vector<StagePass>& slot = slots_.emplace_back();
      const auto slot_number = static_cast<uint32_t>(slots_.size() - 1);
      for (uint32_t s = 0; s < stages_; ++s) {
        const uint32_t returned = s + 1 == stages_ ? had_forward[s] : had_input[s + 1];
        const uint32_t arrived = s == 0 ? micro_batches_ : had_forward[s - 1];
        const bool is_full = forward[s] - input[s] == stages_ - s || forward[s] == micro_batches_;
        if (is_full && input[s] < returned) {
          put_backward(slot_number, s, input[s]++, PassKind::backward_input);
        } else if (!is_full && forward[s] < arrived && forward[s] - weight[s] < stages_) {
          slot.push_back({PassKind::forward, s, forward[s]++});
        } else if (weight[s] < had_input[s]) {
          slot.push_back({PassKind::backward_weight, s, weight[s]++});
        }
      }
    }
  }

 private:
  void put(uint32_t slot, const StagePass& pass) {
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    slots_[slot].push_back(pass);
  }
  void put_backward(uint32_t slot, uint32_t stage, uint32_t micro_batch, PassKind kind = PassKind::backward) {
    if (recomputed_.contains(stage)) put(slot, {PassKind::recomputed, stage, micro_batch});
    put(slot, {kind, stage, micro_batch});
  }

  const std::set<uint32_t>& recomputed_;
  uint32_t stages_;
  uint32_t micro_batches_;
  std::vector<std::vector<StagePass>> slots_;
};

void check_sizes(const Pipeline& pipeline, uint32_t stages, uint32_t micro_batches) {
  check_offload(pipeline);
  if (stages == 0 || micro_batches == 0)
    throw UsageError(
        fmt::format("a pipeline of {} stages and {} micro-batches: it needs at least one of each", stages,
                    micro_batches));
  if (uint64_t{stages} * micro_batches > kMostPasses)
    throw UsageError(
        fmt::format("a pipeline of {} stages and {} micro-batches: micro-batches may pass {} stages in all",
                    stages, micro_batches, kMostPasses));
  if (pipeline.kind == PipelineKind::grouped && micro_batches % (2 * stages) != 0)
    throw UsageError(fmt::format(
        "a grouped pipeline of {} stages takes a multiple of {} micro-batches, not {}: change their "
        "number, or choose interleaved or 1f1b",
        stages, 2 * stages, micro_batches));
  if (!pipeline.recomputed.empty() && *pipeline.recomputed.rbegin() >= stages)
    throw UsageError(fmt::format("stage {} is to be recomputed; the stages are 0 to {}",
                                 *pipeline.recomputed.rbegin(), stages - 1));
}

/// Follows a schedule slot by slot.
class Progress {
 public:
  explicit Progress(const PipelineSchedule& schedule)
      : schedule_(schedule),
        forward_(schedule.stages),
        backward_(schedule.stages),
        weight_(schedule.stages),
        splits_(schedule.stages) {}

  void follow() {
    for (const std::vector<StagePass>& slot : schedule_.slots) {
      const std::vector<uint32_t> forward = forward_, backward = backward_;
      for (const StagePass& pass : slot) follow(pass, forward, backward);
    }
    for (uint32_t s = 0; s < schedule_.stages; ++s) {
      const uint32_t backward = splits_[s] ? weight_[s] : backward_[s];
      if (forward_[s] != schedule_.micro_batches || backward != schedule_.micro_batches)
        throw UsageError(
            fmt::format("a schedule ends after {} forward and {} backward passes of stage {}; there are {}",
                        forward_[s], backward, s, schedule_.micro_batches));
    }
  }

 private:
  void follow(const StagePass& pass, const std::vector<uint32_t>& forward,
              const std::vector<uint32_t>& backward) {
    const uint32_t s = pass.stage, m = pass.micro_batch;
    if (s >= schedule_.stages) reject(pass, fmt::format("there are {} stages", schedule_.stages));
    switch (pass.kind) {
      case PassKind::forward:
        if (m != forward_[s]++) reject(pass, "out of order");
        if (s > 0 && m >= forward[s - 1]) reject(pass, "before the previous stage has passed it on");
        break;
      case PassKind::recomputed:
        if (m != backward_[s] || m >= forward_[s]) reject(pass, "apart from its backward pass");
        break;
      case PassKind::backward:
      case PassKind::backward_input:
        if (m != backward_[s]++) reject(pass, "out of order");
        if (m >= forward[s]) reject(pass, "before its forward pass");
        if (s + 1 < schedule_.stages && m >= backward[s + 1])
          reject(pass, "before the next stage has passed it back");
        splits_[s] = splits_[s] || pass.kind == PassKind::backward_input;
        break;
      case PassKind::backward_weight:
        if (m != weight_[s]++) reject(pass, "out of order");
        if (m >= backward[s]) reject(pass, "before its gradients of inputs");
        break;
    }
  }

  [[noreturn]] static void reject(const StagePass& pass, std::string_view why) {
    throw UsageError(fmt::format("a schedule has {} of stage {} {}", to_string(pass), pass.stage, why));
  }

  const PipelineSchedule& schedule_;
  std::vector<uint32_t> forward_, backward_, weight_;  ///< micro-batches that have passed, by stage
  std::vector<bool> splits_;  ///< by stage: whether gradients of weights have passes of their own
};

}  // namespace

std::string_view name_of(PipelineKind kind) { return kPipelines.of(kind); }

std::string_view name_of(PassKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"forward", "recomputed", "backward", "input gradient",
                                                      "weight gradient"};
  return kNames.at(static_cast<size_t>(kind));
}

std::string_view name_of(ChipSpan::Kind kind) {
  constexpr std::array<std::string_view, 9> kNames = {"forward",        "recomputed",      "backward",
                                                      "input gradient", "weight gradient", "exchange",
                                                      "collective",     "other",           "waiting"};
  return kNames.at(static_cast<size_t>(kind));
}

PipelineKind pipeline_named(std::string_view name) { return kPipelines.named(name); }

void check_offload(const Pipeline& pipeline) {
  if (pipeline.offload_from && !has_several_in_flight(pipeline.kind))
    throw UsageError(fmt::format(
        "activations of micro-batches in flight are to lie in streaming memory, and a {} pipeline "
        "has none in flight: leave that out, or choose grouped, interleaved, 1f1b or zb-h1",
        name_of(pipeline.kind)));
}

std::vector<StagePass> PipelineSchedule::of_stage(uint32_t stage) const {
  std::vector<StagePass> passes;
  for (const std::vector<StagePass>& slot : slots)
    std::ranges::copy_if(slot, std::back_inserter(passes),
                         [&](const StagePass& pass) { return pass.stage == stage; });
  return passes;
}

PipelineSchedule pipeline_schedule(const Pipeline& pipeline, uint32_t stages, uint32_t micro_batches) {
  check_sizes(pipeline, stages, micro_batches);
  Slots slots(pipeline, stages, micro_batches);
  switch (pipeline.kind) {
    case PipelineKind::sequential:
      slots.fill([&](uint32_t s, uint32_t m) { return 2 * stages * m + s; },
                 [&](uint32_t s, uint32_t m) { return 2 * stages * m + 2 * stages - 1 - s; });
      break;
    case PipelineKind::grouped:
      slots.fill([&](uint32_t s, uint32_t m) { return 2 * (m + s); },
                 [&](uint32_t s, uint32_t m) { return 2 * (m + 2 * (stages - 1) - s) + 1; });
      break;
    case PipelineKind::interleaved:
      slots.fill([&](uint32_t s, uint32_t m) { return 2 * m + s; },
                 [&](uint32_t s, uint32_t m) { return 2 * m + 2 * stages - 1 - s; });
      break;
    case PipelineKind::one_forward_one_backward: slots.fill_one_forward_one_backward(); break;
    case PipelineKind::zero_bubble: slots.fill_zero_bubble(); break;
  }
  return slots.release();
}

void check(const PipelineSchedule& schedule) { Progress(schedule).follow(); }

std::string to_string(const PipelineSchedule& schedule) {
  std::vector<std::string> lines(schedule.stages);
  for (uint32_t s = 0; s < schedule.stages; ++s) lines[s] = fmt::format("stage {}:", s);
  const auto widest = [&] { return std::ranges::max_element(lines, {}, &std::string::size)->size(); };
  const size_t names = widest();
  for (std::string& line : lines) line.resize(names, ' ');
  for (const std::vector<StagePass>& slot : schedule.slots) {
    const size_t begin = lines[0].size();
    for (const StagePass& pass : slot) lines[pass.stage] += ' ' + to_string(pass);
    const size_t end = widest();
    for (std::string& line : lines) {
      if (line.size() == begin) line += ' ';
      line.resize(end, line.back() == ' ' ? '.' : ' ');
    }
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace tessera::graph
