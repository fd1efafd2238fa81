#include "ops/collective/collective.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <functional>
#include <utility>

#include "compiler/collective_cost.h"
#include "kernels/map/elementwise/codelet.h"
#include "program/collective.h"

namespace tessera::ops {
namespace {

using program::Collective;
using program::CollectiveAlgorithm;
using program::CollectiveKind;
using program::Exchanged;
using program::Program;
using program::Role;
using program::StepId;
using program::VariableId;

/// One line of elements beside each box of a variable.
VariableId add_beside(Program& program, VariableId of, std::string name, Role role,
                      const std::function<uint64_t(uint64_t)>& elements_of) {
  const program::Variable& whole = program.variable(of);
  program::Variable beside{std::move(name), whole.type, 1, 0, role, {}, {}, whole.purpose};
  for (const program::MappedBox& mapped : whole.mapping) {
    const auto elements = static_cast<uint32_t>(elements_of(mapped.box.elements()));
    beside.mapping.push_back({{0, 1, beside.cols, elements}, mapped.tile});
    beside.cols += elements;
  }
  return program.add(std::move(beside));
}

StepId add(Program& program, const machine::Machine& replica, Collective collective) {
  const uint32_t replicas = program.replicas();
  if (replicas == 1 || collective.variables.empty()) return program::kNoStep;
  const auto cost = [&](CollectiveAlgorithm algorithm) {
    collective.algorithm = algorithm;
    return compiler::cost_of(program, collective, replica).cycles.total();
  };
  const bool by_tree = cost(CollectiveAlgorithm::tree) < cost(CollectiveAlgorithm::ring);
  collective.algorithm = by_tree ? CollectiveAlgorithm::tree : CollectiveAlgorithm::ring;
  if (program::sums(collective.kind))
    for (Exchanged& exchanged : collective.variables)
      exchanged.buffer =
          add_beside(program, exchanged.whole, program.variable(exchanged.whole).name + ".received",
                     Role::temporary, [&](uint64_t elements) {
                       return program::buffer_elements(collective.algorithm, elements, replicas);
                     });
  return program.collect(std::move(collective));
}

}  // namespace

StepId all_reduce(Program& program, const machine::Machine& replica, std::string name,
                  std::span<const VariableId> variables) {
  Collective collective{std::move(name),
                        CollectiveKind::all_reduce,
                        CollectiveAlgorithm::ring,
                        &kernels::codelet_of(kernels::Binary::add),
                        {}};
  for (const VariableId variable : variables) collective.variables.push_back({variable, {}, {}});
  return add(program, replica, std::move(collective));
}

}  // namespace tessera::ops
