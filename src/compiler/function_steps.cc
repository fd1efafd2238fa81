#include "compiler/function_steps.h"

#include <map>
#include <utility>

#include "program/uses.h"

namespace tessera::compiler {
namespace {

using program::Access;
using program::StepId;

void add_steps(const program::Program& program, StepId id, std::vector<StepId>& steps) {
  if (id == program::kNoStep) return;
  const auto* sequence = std::get_if<program::Sequence>(&program.steps()[id]);
  if (sequence == nullptr) {
    steps.push_back(id);
    return;
  }
  for (const StepId inner : sequence->steps) add_steps(program, inner, steps);
}

/// The steps that touch an argument: the number of steps before the first of them, and up to the last.
struct TouchedBetween {
  uint32_t first = 0;
  uint32_t end = 0;
};

FunctionSteps steps_of(const program::Program& program, const program::Function& function,
                       program::UsesOfSteps& uses) {
  FunctionSteps found;
  if (function.arguments.empty()) return found;
  add_steps(program, function.body, found.steps);
  const auto steps = static_cast<uint32_t>(found.steps.size());
  std::map<program::VariableId, TouchedBetween> touched;
  for (uint32_t s = 0; s < steps; ++s) {
    const program::StepUses of_step = uses.of(found.steps[s]);
    for (const auto& use : of_step.own)
      touched.try_emplace(use.first, TouchedBetween{s, 0}).first->second.end = s + 1;
  }
  std::map<uint32_t, std::vector<FunctionSteps::Use>> bounds;
  for (uint32_t i = 0; i < function.arguments.size(); ++i) {
    const program::Argument& argument = function.arguments[i];
    const TouchedBetween between = touched[argument.variable];
    const uint32_t first = argument.access == Access::in ? between.end : between.first;
    const uint32_t last = argument.access == Access::out ? steps : between.end;
    bounds[first].push_back({i, reads(argument.access), writes(argument.access)});
    if (last > first) bounds[last].push_back({i, true, false});
  }
  for (auto& [step, of_bound] : bounds) found.bounds.push_back({step, std::move(of_bound)});
  return found;
}

}  // namespace

std::vector<FunctionSteps> steps_of_functions(const program::Program& program) {
  program::UsesOfSteps uses(program);
  std::vector<FunctionSteps> found;
  found.reserve(program.functions().size());
  for (const program::Function& function : program.functions())
    found.push_back(steps_of(program, function, uses));
  return found;
}

}  // namespace tessera::compiler
