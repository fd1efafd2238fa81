#include "program/uses.h"

#include <utility>

#include "program/collective.h"

namespace tessera::program {

StepUses UsesOfSteps::of(StepId id) {
  StepUses uses;
  std::set<StepId> seen;
  gather(id, uses, seen);
  return uses;
}

Uses UsesOfSteps::all_of(StepId id) {
  StepUses uses = of(id);
  for (const auto& [v, is_written] : uses.called) note(uses.own, v, is_written);
  return std::move(uses.own);
}

const Uses& UsesOfSteps::touched_by(FunctionId id) {
  const auto known = touched_.find(id);
  if (known != touched_.end()) return known->second;
  StepUses uses = of(program_.functions()[id].body);
  for (const auto& [v, is_written] : uses.own)
    if (!program_.variable(v).is_argument()) note(uses.called, v, is_written);
  return touched_.emplace(id, std::move(uses.called)).first->second;
}

void UsesOfSteps::gather(StepId id, StepUses& uses, std::set<StepId>& seen) {
  if (id == kNoStep || !seen.insert(id).second) return;
  std::visit([&](const auto& step) { gather_inside(step, uses, seen); }, program_.steps()[id]);
}

void UsesOfSteps::gather_inside(const Sequence& sequence, StepUses& uses, std::set<StepId>& seen) {
  for (const StepId step : sequence.steps) gather(step, uses, seen);
}

void UsesOfSteps::gather_inside(const Execute& execute, StepUses& uses, std::set<StepId>&) {
  for (const VertexGroup& group : program_.compute_sets()[execute.set].groups)
    for (size_t f = 0; f < group.fields.size(); ++f) {
      note(uses.own, group.fields[f].variable, writes(group.codelet->fields[f].access));
      if (group.fields[f].row) note(uses.own, group.fields[f].row->index, false);
    }
}

void UsesOfSteps::gather_inside(const Copy& copy, StepUses& uses, std::set<StepId>& seen) {
  for (const CopyGroup& group : program_.copy_sets()[copy.set].groups) {
    note(uses.own, group.from, false);
    note(uses.own, group.to, true);
    for (const auto& row : {group.source_offset, group.target_offset})
      if (row) note(uses.own, row->index, false);
  }
  gather(copy.beside, uses, seen);
}

void UsesOfSteps::gather_inside(const Collect& collect, StepUses& uses, std::set<StepId>& seen) {
  each_variable(program_.collectives()[collect.collective], [&](VariableId v) { note(uses.own, v, true); });
  gather(collect.beside, uses, seen);
}

void UsesOfSteps::gather_inside(const Repeat& repeat, StepUses& uses, std::set<StepId>& seen) {
  if (repeat.counter) note(uses.own, *repeat.counter, true);
  gather(repeat.body, uses, seen);
}

void UsesOfSteps::gather_inside(const While& loop, StepUses& uses, std::set<StepId>& seen) {
  note(uses.own, loop.condition, false);
  gather(loop.test, uses, seen);
  gather(loop.body, uses, seen);
}

void UsesOfSteps::gather_inside(const If& branch, StepUses& uses, std::set<StepId>& seen) {
  note(uses.own, branch.condition, false);
  gather(branch.then, uses, seen);
  gather(branch.otherwise, uses, seen);
}

void UsesOfSteps::gather_inside(const Call& call, StepUses& uses, std::set<StepId>&) {
  const std::vector<Argument>& arguments = program_.functions()[call.function].arguments;
  for (size_t i = 0; i < arguments.size(); ++i)
    note(uses.own, call.operands[i].variable, writes(arguments[i].access));
  for (const auto& [v, is_written] : touched_by(call.function)) note(uses.called, v, is_written);
}

}  // namespace tessera::program
