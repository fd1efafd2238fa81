// What the chips of a machine do when, in terms of some steps of a program.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "program/program.h"

namespace tessera::compiler {

class ChipClocks;

/// Follows the clocks of chips through the executions of watched steps, collectives, and what lies between
/// them. Watched steps do not contain each other.
class StepWatch {
 public:
  enum class Kind : uint8_t { step, collective, other, waiting };
  /// A stretch of a chip's time, in cycles. A chip that waits before it takes part in something is `waiting`;
  /// when it waits later, in the middle of a watched step, that is part of the step.
  struct Span {
    Kind kind = Kind::other;
    program::StepId step = program::kNoStep;
    uint32_t execution = 0;  ///< how often the step was executed before
    double begin = 0;
    double end = 0;
  };

  explicit StepWatch(const std::vector<program::StepId>& steps) {
    for (const program::StepId step : steps) executions_[step] = 0;
  }

  // The following are for code that walks a program; `clocks` are the clocks of its chips.
  void begin(const ChipClocks& clocks);
  bool watches(program::StepId step) const { return executions_.contains(step); }
  void enter(program::StepId step, const ChipClocks& clocks);
  void leave(const ChipClocks& clocks);
  /// A collective within a watched step is part of the step.
  void enter_collective(const ChipClocks& clocks) {
    if (!inside_) enter({.kind = Kind::collective}, clocks);
  }
  void leave_collective(const ChipClocks& clocks) {
    if (inside_ && inside_->kind == Kind::collective) leave(clocks);
  }
  void wait(size_t chip, double from, double until);
  /// Data of a collective was under way while chips did other things.
  void travelled(double begin, double end) { under_way_.push_back({begin, end}); }
  void end(const ChipClocks& clocks);

  /// A position to which repeat_since() refers.
  struct Mark {
    std::vector<size_t> spans;  ///< by chip
    std::map<program::StepId, uint32_t> executions;
  };
  Mark mark(const ChipClocks& clocks);
  /// After what happened between `mark` and the clocks `passed` was repeated another `times` times.
  void repeat_since(const Mark& mark, const ChipClocks& before, const ChipClocks& passed,
                    const ChipClocks& clocks, uint32_t times);

  /// By chip: spans from 0 to the end of the chip that ends last, each beginning where the previous one ends.
  const std::vector<std::vector<Span>>& chips() const { return chips_; }
  /// The times, in cycles, in which data of collectives was under way while chips did other things; such
  /// times may overlap. Those of loop passes that are repeated without being walked are missing.
  const std::vector<std::pair<double, double>>& under_way() const { return under_way_; }

 private:
  void enter(Span what, const ChipClocks& clocks);
  void close(const ChipClocks& clocks);
  void add(size_t chip, Span span, double until);
  void merge(std::vector<Span>& spans);

  std::map<program::StepId, uint32_t> executions_;
  std::optional<Span> inside_;  ///< what is being executed, unless it is `other`
  std::vector<double> since_;   ///< by chip: the end of its last span
  std::vector<std::vector<Span>> chips_;
  std::vector<std::pair<double, double>> under_way_;
};

}  // namespace tessera::compiler
