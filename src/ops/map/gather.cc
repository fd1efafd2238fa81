#include "ops/map/gather.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "kernels/common/element.h"
#include "kernels/map/gather/codelet.h"

namespace tessera::ops {
namespace {

using machine::Kind;
using machine::Machine;
using program::Box;
using program::BoxSeries;
using program::Phase;
using program::Role;

uint32_t count_of(const GatherProblem& p) { return static_cast<uint32_t>(p.rows.size()); }

void check(const GatherProblem& p) {
  const auto beyond =
      std::find_if(p.rows.begin(), p.rows.end(), [&](uint32_t row) { return row >= p.source_rows; });
  if (beyond != p.rows.end())
    throw UsageError(fmt::format("a gather wants row {} of {}: entry {} of its list", *beyond, p.source_rows,
                                 beyond - p.rows.begin()));
}

std::shared_ptr<const std::byte> list_of(const GatherProblem& p, Type index) {
  auto bytes = std::make_shared<std::vector<std::byte>>(p.rows.size() * size_of(index));
  for (size_t i = 0; i < p.rows.size(); ++i)
    kernels::store_number(index, bytes->data() + i * size_of(index), p.rows[i]);
  return {bytes, bytes->data()};
}

/// On shared memory: a codelet that follows a constant list.
MapOperation operation_of(const GatherProblem& p) {
  const Type index = p.source_rows <= 1U << 16 ? Type::u16 : Type::u32;
  const uint32_t count = count_of(p);
  MapOperation operation{
      .codelet = &kernels::gather_rows_codelet, .phase = Phase::rearrange, .rows = count, .cols = p.cols};
  operation.operands = {{"rows", index, Role::constant, count, 1, true, false, list_of(p, index)},
                        {"source", p.type, Role::input, p.source_rows, p.cols, false, true},
                        {"out", p.type, Role::output, count, p.cols}};
  return operation;
}

MapOperation operation_of(const CopyProblem& p) {
  MapOperation operation{
      .codelet = &kernels::copy_codelet, .phase = Phase::rearrange, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.type, Role::input, p.rows, p.cols},
                        {"out", p.type, Role::output, p.rows, p.cols}};
  return operation;
}

BuiltOperation build_exchange(program::Program& program, const GatherProblem& p, const MapPlan& plan,
                              const Machine& machine) {
  const uint32_t count = count_of(p);
  const program::VariableId source =
      program.add(program::Variable{"source",
                                    p.type,
                                    p.source_rows,
                                    p.cols,
                                    Role::input,
                                    program::map_linearly(p.source_rows, p.cols, machine.tiles),
                                    {}});
  const program::VariableId out = program.add(program::Variable{
      "out", p.type, count, p.cols, Role::output, map_partition(plan.partition, machine), {}});
  program::CopyGroup group;
  group.from = source;
  group.to = out;
  group.count = 1;
  group.source = group.target = BoxSeries::same({0, count, 0, p.cols});
  group.source_rows = std::make_shared<const std::vector<uint32_t>>(p.rows);
  program::CopySet set{"gather", {}};
  if (count > 0 && p.cols > 0) set.groups.push_back(std::move(group));
  return {{source, out}, program.copy(std::move(set))};
}

}  // namespace

MapPlan plan(const GatherProblem& problem, const Machine& machine) {
  check(problem);
  if (machine.kind == Kind::host) return plan_map(operation_of(problem), machine);
  return choose_partition(count_of(problem), problem.cols, machine, [&](const MapPartition& partition) {
    return predict(partition, machine, [&](program::Program& program, const MapPlan& plan) {
      return build_exchange(program, problem, plan, machine).step;
    });
  });
}

MapPlan plan(const CopyProblem& problem, const Machine& machine) {
  return plan_map(operation_of(problem), machine);
}

BuiltOperation build(program::Program& program, const GatherProblem& problem, const MapPlan& plan,
                     const Machine& machine) {
  check(problem);
  if (machine.kind != Kind::host) return build_exchange(program, problem, plan, machine);
  BuiltOperation built = build_map(program, operation_of(problem), plan, machine);
  built.operands.erase(built.operands.begin());  // the list is the program's own
  return built;
}

BuiltOperation build(program::Program& program, const CopyProblem& problem, const MapPlan& plan,
                     const Machine& machine) {
  return build_map(program, operation_of(problem), plan, machine);
}

}  // namespace tessera::ops
