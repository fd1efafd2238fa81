#include "ops/collective/collective.h"

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
std::vector<program::MappedBox> lines_beside(const program::Variable& whole,
                                             const std::function<uint64_t(uint64_t)>& elements_of) {
  std::vector<program::MappedBox> lines;
  uint32_t end = 0;
  for (const program::MappedBox& mapped : whole.mapping) {
    const auto elements = static_cast<uint32_t>(elements_of(mapped.box.elements()));
    lines.push_back({{0, 1, end, elements}, mapped.tile});
    end += elements;
  }
  return lines;
}

VariableId add_buffer(Program& program, const Collective& collective, VariableId of) {
  const program::Variable& whole = program.variable(of);
  program::Variable buffer{whole.name + ".received", whole.type, 1,  0,
                           Role::temporary,          {},         {}, whole.purpose};
  buffer.mapping = lines_beside(whole, [&](uint64_t elements) {
    return program::buffer_elements(collective.algorithm, elements,
                                    program::group_size(collective, program.replicas()));
  });
  buffer.cols = static_cast<uint32_t>(buffer.mapping.back().box.col_end());
  return program.add(std::move(buffer));
}

StepId add(Program& program, const machine::Machine& replica, Collective collective) {
  if (program::group_size(collective, program.replicas()) == 1 || collective.variables.empty())
    return program::kNoStep;
  const auto cost = [&](CollectiveAlgorithm algorithm) {
    collective.algorithm = algorithm;
    return compiler::cost_of(program, collective, replica).cycles.total();
  };
  const bool by_tree = cost(CollectiveAlgorithm::tree) < cost(CollectiveAlgorithm::ring);
  collective.algorithm = by_tree ? CollectiveAlgorithm::tree : CollectiveAlgorithm::ring;
  if (program::sums(collective.kind))
    for (Exchanged& exchanged : collective.variables)
      exchanged.buffer = add_buffer(program, collective, exchanged.whole);
  return program.collect(std::move(collective));
}

Collective named(std::string name, CollectiveKind kind) {
  return {std::move(name),
          kind,
          CollectiveAlgorithm::ring,
          program::sums(kind) ? &kernels::codelet_of(kernels::Binary::add) : nullptr,
          {}};
}

StepId add(Program& program, const machine::Machine& replica, Collective collective,
           std::span<const Sharded> variables) {
  for (const Sharded& variable : variables)
    collective.variables.push_back({variable.whole, variable.part, {}});
  return add(program, replica, std::move(collective));
}

}  // namespace

std::vector<program::MappedBox> mapping_of_part(const program::Variable& whole, uint32_t replicas) {
  return lines_beside(whole, [&](uint64_t elements) { return program::part_elements(elements, replicas); });
}

StepId all_reduce(Program& program, const machine::Machine& replica, std::string name,
                  std::span<const VariableId> variables, uint32_t group) {
  Collective collective = named(std::move(name), CollectiveKind::all_reduce);
  collective.group = group;
  for (const VariableId variable : variables) collective.variables.push_back({variable, {}, {}});
  return add(program, replica, std::move(collective));
}

StepId reduce_scatter(Program& program, const machine::Machine& replica, std::string name,
                      std::span<const Sharded> variables) {
  return add(program, replica, named(std::move(name), CollectiveKind::reduce_scatter), variables);
}

StepId all_gather(Program& program, const machine::Machine& replica, std::string name,
                  std::span<const Sharded> variables) {
  return add(program, replica, named(std::move(name), CollectiveKind::all_gather), variables);
}

StepId scatter(Program& program, const machine::Machine& replica, std::string name,
               std::span<const Sharded> variables) {
  return add(program, replica, named(std::move(name), CollectiveKind::scatter), variables);
}

}  // namespace tessera::ops
