#include "lower/overlap.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "program/collective.h"

namespace tessera::graph {

using program::StepId;
using program::VariableId;

namespace {

size_t position_in(const std::map<VariableId, size_t>& positions, VariableId v) {
  const auto found = positions.find(v);
  return found == positions.end() ? 0 : found->second;
}

/// Whether a step may run beside a copy.
bool may_be_beside(const program::Program& program, program::UsesOfSteps& uses, StepId step,
                   const program::CopySet& set) {
  if (step == program::kNoStep) return true;
  if (std::holds_alternative<program::Repeat>(program.steps()[step])) return false;
  const program::Uses touched = uses.all_of(step);
  return std::ranges::none_of(set.groups, [&](const program::CopyGroup& group) {
    return touched.contains(group.from) || touched.contains(group.to);
  });
}

}  // namespace

std::vector<StepId> fetched_ahead(program::Program& program, std::vector<StepId> steps,
                                  const std::set<StepId>& fetches) {
  if (fetches.empty()) return steps;
  program::UsesOfSteps uses(program);
  std::vector<StepId> ahead;
  std::optional<size_t> since;  // the first step after the last fetch
  for (StepId step : steps) {
    if (!fetches.contains(step)) {
      ahead.push_back(step);
      continue;
    }
    const program::CopySetId set = std::get<program::Copy>(program.steps()[step]).set;
    size_t begin = ahead.size();
    while (since && begin > *since &&
           may_be_beside(program, uses, ahead[begin - 1], program.copy_sets()[set]))
      --begin;
    if (begin < ahead.size()) {
      const auto first = ahead.begin() + static_cast<std::ptrdiff_t>(begin);
      const StepId beside = program.sequence({first, ahead.end()});
      ahead.erase(first, ahead.end());
      step = program.add(program::Step{program::Copy{set, beside}});
    }
    ahead.push_back(step);
    since = ahead.size();
  }
  return ahead;
}

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

std::vector<StepId> StepOrder::steps(const std::set<StepId>& fetches) {
  sort();
  return with_besides(0, placed_.size(), fetches);
}

/// Early steps after the same step keep the order in which they were added, and follow it because they were
/// added later.
void StepOrder::sort() { std::ranges::stable_sort(placed_, {}, &Placed::after); }

std::vector<StepId> StepOrder::with_besides(size_t first, size_t last, const std::set<StepId>& fetches) {
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
    beside.beside = program_.sequence(with_besides(i + 1, end, fetches));
    steps.push_back(program_.add(program::Step{beside}));
    i = end - 1;
  }
  return fetched_ahead(program_, std::move(steps), fetches);
}

bool StepOrder::touches(const Placed& placed, const program::Collective& collective) const {
  bool any = false;
  program::each_variable(collective, [&](VariableId v) { any = any || placed.uses.contains(v); });
  return any;
}

}  // namespace tessera::graph
