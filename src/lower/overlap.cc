#include "lower/overlap.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "program/collective.h"

namespace tessera::graph {

using program::StepId;
using program::VariableId;

namespace {

size_t position_in(const std::map<VariableId, size_t>& positions, VariableId v) {
  const auto found = positions.find(v);
  return found == positions.end() ? 0 : found->second;
}

}  // namespace

void StepOrder::add(StepId step, bool early) {
  if (step == program::kNoStep) return;
  Placed placed{.step = step, .after = placed_.size() + 1, .early = early, .uses = uses_.all_of(step)};
  if (early) {
    placed.after = 0;
    for (const auto& [v, writes] : placed.uses)
      placed.after = std::max(placed.after, position_in(writes ? touched_ : written_, v));
  }
  for (const auto& [v, writes] : placed.uses) {
    size_t& touched = touched_[v];
    touched = std::max(touched, placed.after);
    if (writes) written_[v] = std::max(position_in(written_, v), placed.after);
  }
  placed_.push_back(std::move(placed));
}

size_t StepOrder::written(VariableId variable) const { return position_in(written_, variable); }

std::vector<StepId> StepOrder::in_order() {
  sort();
  std::vector<StepId> steps;
  for (const Placed& placed : placed_) steps.push_back(placed.step);
  return steps;
}

std::vector<StepId> StepOrder::steps() {
  sort();
  return with_besides(0, placed_.size());
}

/// Early steps that come after the same step stay in the order in which they were added, and follow it, as
/// they were added later.
void StepOrder::sort() { std::ranges::stable_sort(placed_, {}, &Placed::after); }

std::vector<StepId> StepOrder::with_besides(size_t first, size_t last) {
  std::vector<StepId> steps;
  for (size_t i = first; i < last; ++i) {
    const Placed& placed = placed_[i];
    const auto* collect =
        placed.early ? std::get_if<program::Collect>(&program_.steps()[placed.step]) : nullptr;
    size_t end = i + 1;
    program::Collect beside;
    if (collect != nullptr) {
      beside = *collect;
      while (end < last && !touches(placed_[end], program_.collectives()[beside.collective])) ++end;
    }
    if (end == i + 1) {
      steps.push_back(placed.step);
      continue;
    }
    beside.beside = program_.sequence(with_besides(i + 1, end));
    steps.push_back(program_.add(program::Step{beside}));
    i = end - 1;
  }
  return steps;
}

bool StepOrder::touches(const Placed& placed, const program::Collective& collective) const {
  bool any = false;
  program::each_variable(collective, [&](VariableId v) { any = any || placed.uses.contains(v); });
  return any;
}

}  // namespace tessera::graph
