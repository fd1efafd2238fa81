#include "compiler/function_steps.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/schedule.h"
#include "program/uses.h"

namespace tessera::compiler {
namespace {

using program::Access;
using program::StepId;
using program::VariableId;

/// The steps that touch something: the number of steps before the first of them, and up to the last.
struct TouchedBetween {
  uint32_t first = 0;
  uint32_t end = 0;
};

class FunctionStepsSearch {
 public:
  explicit FunctionStepsSearch(const program::Program& program) : program_(program), uses_(program) {}

  FunctionSteps of(const program::Function& function) {
    FunctionSteps found;
    if (function.arguments.empty()) return found;
    add_steps(function.body, found.steps);
    found.bounds = bounds_of(function, found.steps);
    return found;
  }

 private:
  /// Sequences may share others, and then stand for far more steps than they list.
  void add_steps(StepId id, std::vector<StepId>& steps) {
    if (id == program::kNoStep) return;
    if (++visited_ > kMostSteps) refuse_schedule();
    const auto* sequence = std::get_if<program::Sequence>(&program_.steps()[id]);
    if (sequence == nullptr) {
      steps.push_back(id);
      return;
    }
    for (const StepId inner : sequence->steps) add_steps(inner, steps);
  }

  std::vector<FunctionSteps::Bound> bounds_of(const program::Function& function,
                                              const std::vector<StepId>& steps) {
    std::map<VariableId, TouchedBetween> touched = touched_by(steps);
    std::map<uint32_t, std::vector<FunctionSteps::Use>> bounds;
    for (uint32_t i = 0; i < function.arguments.size(); ++i) {
      const auto [variable, access] = function.arguments[i];
      const TouchedBetween between = touched[variable];
      const uint32_t first = writes(access) ? between.first : 0;
      const uint32_t last = access == Access::out ? static_cast<uint32_t>(steps.size()) : between.end;
      if (reads(access) && first > 0) bounds[0].push_back({i, true, false});
      bounds[first].push_back({i, reads(access), writes(access)});
      if (last > first) bounds[last].push_back({i, true, false});
    }
    std::vector<FunctionSteps::Bound> ascending;
    for (auto& [step, uses] : bounds) ascending.push_back({step, std::move(uses)});
    return ascending;
  }

  /// When steps touch which arguments. A step may come many times.
  std::map<VariableId, TouchedBetween> touched_by(const std::vector<StepId>& steps) {
    std::map<StepId, TouchedBetween> distinct;
    for (uint32_t s = 0; s < steps.size(); ++s)
      distinct.try_emplace(steps[s], TouchedBetween{s, 0}).first->second.end = s + 1;
    std::map<VariableId, TouchedBetween> touched;
    for (const auto& [step, when] : distinct) {
      const program::StepUses of_step = uses_.of(step);
      for (const auto& use : of_step.own) {
        if (!program_.variable(use.first).is_argument()) continue;
        TouchedBetween& between = touched.try_emplace(use.first, when).first->second;
        between.first = std::min(between.first, when.first);
        between.end = std::max(between.end, when.end);
      }
    }
    return touched;
  }

  const program::Program& program_;
  program::UsesOfSteps uses_;
  uint32_t visited_ = 0;
};

}  // namespace

std::vector<FunctionSteps> steps_of_functions(const program::Program& program) {
  FunctionStepsSearch search(program);
  std::vector<FunctionSteps> found;
  found.reserve(program.functions().size());
  for (const program::Function& function : program.functions()) found.push_back(search.of(function));
  return found;
}

}  // namespace tessera::compiler
