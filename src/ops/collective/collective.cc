#include "ops/collective/collective.h"

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

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

bool is_nothing(const Program& program, const Collective& collective) {
  return program::group_size(collective, program.replicas()) == 1 || collective.variables.empty();
}

CollectiveAlgorithm fastest(const Program& program, const machine::Machine& replica, Collective collective) {
  const auto cost = [&](CollectiveAlgorithm algorithm) {
    collective.algorithm = algorithm;
    return compiler::cost_of(program, collective, replica).cycles.total();
  };
  const bool by_tree = cost(CollectiveAlgorithm::tree) < cost(CollectiveAlgorithm::ring);
  return by_tree ? CollectiveAlgorithm::tree : CollectiveAlgorithm::ring;
}

/// Adds the collective with the chosen algorithm.
StepId add_chosen(Program& program, Collective collective) {
  if (program::sums(collective.kind))
    for (Exchanged& exchanged : collective.variables)
      exchanged.buffer = add_buffer(program, collective, exchanged.whole);
  return program.collect(std::move(collective));
}

StepId add(Program& program, const machine::Machine& replica, Collective collective) {
  if (is_nothing(program, collective)) return program::kNoStep;
  collective.algorithm = fastest(program, replica, collective);
  return add_chosen(program, std::move(collective));
}

uint64_t elements_of(const Program& program, const Collective& collective) {
  uint64_t elements = 0;
  for (const Exchanged& of : collective.variables) elements += program.variable(of.whole).elements();
  return elements;
}

/// Whether links are busy for much longer than tiles, which cannot do other work while they exchange. On
/// hosts, whose rates between ranks are unknown, another thread exchanges and adds.
bool hides_well(const Program& program, const machine::Machine& replica, const Collective& collective) {
  if (replica.kind == machine::Kind::host) return true;
  constexpr double kTimes = 4;
  const compiler::CollectiveCost cost = compiler::cost_of(program, collective, replica);
  return cost.under_way >= kTimes * (cost.cycles.total() - cost.under_way);
}

/// Several collectives like `like`, each for neighbouring lists with at least an eighth of all elements, as
/// several cost tiles more than one; the last takes the rest.
std::vector<StepId> add_each(Program& program, const machine::Machine& replica, Collective like,
                             const std::vector<std::vector<Exchanged>>& lists) {
  Collective all = like;
  for (const std::vector<Exchanged>& list : lists)
    all.variables.insert(all.variables.end(), list.begin(), list.end());
  if (is_nothing(program, all)) return {};
  constexpr uint64_t kMost = 8;
  const uint64_t share = elements_of(program, all) / kMost;
  like.algorithm = fastest(program, replica, std::move(all));
  std::vector<StepId> steps;
  Collective next = like;
  uint64_t wanted = share;
  for (size_t i = 0; i < lists.size(); ++i) {
    next.variables.insert(next.variables.end(), lists[i].begin(), lists[i].end());
    if (i + 1 < lists.size()) {
      const uint64_t elements = elements_of(program, next);
      if (elements < wanted) continue;
      wanted = elements + share;
      if (!hides_well(program, replica, next)) continue;
    }
    steps.push_back(add_chosen(program, std::move(next)));
    next = like;
    wanted = share;
  }
  return steps;
}

Collective named(std::string name, CollectiveKind kind) {
  return {std::move(name),
          kind,
          CollectiveAlgorithm::ring,
          program::sums(kind) ? &kernels::codelet_of(kernels::Binary::add) : nullptr,
          {}};
}

std::vector<Exchanged> exchanged(std::span<const Sharded> variables) {
  std::vector<Exchanged> all;
  for (const Sharded& variable : variables) all.push_back({variable.whole, variable.part, {}});
  return all;
}
std::vector<Exchanged> exchanged(std::span<const VariableId> variables) {
  std::vector<Exchanged> all;
  for (const VariableId variable : variables) all.push_back({variable, {}, {}});
  return all;
}

StepId add(Program& program, const machine::Machine& replica, Collective collective,
           std::span<const Sharded> variables) {
  collective.variables = exchanged(variables);
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
  collective.variables = exchanged(variables);
  return add(program, replica, std::move(collective));
}

std::vector<StepId> all_reduces(Program& program, const machine::Machine& replica, const std::string& name,
                                std::span<const std::vector<VariableId>> lists, uint32_t group) {
  Collective collective = named(name, CollectiveKind::all_reduce);
  collective.group = group;
  std::vector<std::vector<Exchanged>> all;
  for (const std::vector<VariableId>& list : lists) all.push_back(exchanged(list));
  return add_each(program, replica, std::move(collective), all);
}

bool hides_well(const Program& program, const machine::Machine& replica,
                std::span<const VariableId> variables) {
  Collective collective = named("", CollectiveKind::all_reduce);
  collective.variables = exchanged(variables);
  return !is_nothing(program, collective) && hides_well(program, replica, collective);
}

std::vector<StepId> reduce_scatters(Program& program, const machine::Machine& replica,
                                    const std::string& name, std::span<const std::vector<Sharded>> lists) {
  std::vector<std::vector<Exchanged>> all;
  for (const std::vector<Sharded>& list : lists) all.push_back(exchanged(list));
  return add_each(program, replica, named(name, CollectiveKind::reduce_scatter), all);
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
