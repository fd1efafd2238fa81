#include "ops/map/gather.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "base/ceil_divide.h"
#include "kernels/common/element.h"
#include "kernels/map/gather/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::BoxSeries;
using program::Phase;
using program::Role;

uint32_t count_of(const GatherProblem& p) { return static_cast<uint32_t>(p.rows.size()); }

void check(const GatherProblem& p) {
  const auto beyond =
      std::find_if(p.rows.begin(), p.rows.end(), [&](uint32_t row) { return row >= p.source_rows; });
  if (beyond != p.rows.end())
    throw UsageError(fmt::format("a gather lists row {} of {}, as entry {} of its list", *beyond,
                                 p.source_rows, beyond - p.rows.begin()));
}

std::shared_ptr<const std::byte> list_of(const GatherProblem& p, Type index) {
  auto bytes = std::make_shared<std::vector<std::byte>>(p.rows.size() * size_of(index));
  for (size_t i = 0; i < p.rows.size(); ++i)
    kernels::store_number(index, bytes->data() + i * size_of(index), p.rows[i]);
  return {bytes, bytes->data()};
}

/// On shared memory: a codelet with a constant list.
MapOperation gather_on_host(const GatherProblem& p) {
  const Type index = p.source_rows <= 1U << 16 ? Type::u16 : Type::u32;
  const uint32_t count = count_of(p);
  MapOperation operation{
      .codelet = &kernels::gather_rows_codelet, .phase = Phase::rearrange, .rows = count, .cols = p.cols};
  operation.params = {1, p.source_rows};
  operation.operands = {{"rows", index, Role::constant, count, 1, true, false, list_of(p, index)},
                        {"source", p.type, Role::input, p.source_rows, p.cols, false, true},
                        {"out", p.type, Role::output, count, p.cols}};
  return operation;
}

void check_operands(const Builder& builder, const GatherProblem& p, const std::vector<Operand>& operands) {
  if (operands.size() != 2)
    throw UsageError(fmt::format("a gather takes 2 operands; there are {}", operands.size()));
  builder.require(operands[0], "source", p.type, p.source_rows, p.cols);
  builder.require(operands[1], "out", p.type, count_of(p), p.cols);
}

/// The rows in terms of the source's variable.
std::shared_ptr<const std::vector<uint32_t>> rows_of(const GatherProblem& p, const Operand& source) {
  auto rows = std::make_shared<std::vector<uint32_t>>(p.rows);
  for (uint32_t& row : *rows) row += source.box.row;
  return rows;
}

program::StepId build_exchange(const Builder& builder, const GatherProblem& p, const Operand& source,
                               const Operand& out) {
  program::CopyGroup group;
  group.from = source.variable;
  group.to = out.variable;
  group.count = 1;
  group.source = BoxSeries::same({0, count_of(p), source.box.col, p.cols});
  group.target = BoxSeries::same(out.box);
  group.source_rows = rows_of(p, source);
  program::CopySet set{"gather", {}};
  if (!out.box.empty()) set.groups.push_back(std::move(group));
  return builder.copy(std::move(set));
}

}  // namespace

MapOperation operation_of(const LookupProblem& p) {
  require_number(p.type, "a lookup");
  const bool by_columns = p.panel_rows == 1;
  MapOperation operation{.codelet = &kernels::gather_rows_codelet,
                         .phase = Phase::rearrange,
                         .rows = by_columns ? 1 : p.rows,
                         .cols = by_columns ? p.cols : 1,
                         .params = {p.panel_rows, p.source_rows}};
  operation.operands = {{"rows", Type::u32, Role::input, p.rows, 1, !by_columns, false},
                        {"source", p.type, Role::input, base::ceil_divide(p.source_rows, p.panel_rows),
                         p.cols * p.panel_rows, false, by_columns},
                        {"out", p.type, Role::output, p.rows, p.cols, !by_columns, by_columns}};
  return operation;
}

MapOperation operation_of(const ScatterAddProblem& p) {
  MapOperation operation{.codelet = p.adds ? &kernels::add_rows_codelet : &kernels::scatter_add_rows_codelet,
                         .phase = Phase::rearrange,
                         .rows = 1,
                         .cols = p.cols,
                         .params = {p.skipped ? int64_t{*p.skipped} : -1, p.panel_rows, p.out_rows}};
  const MapOperand out{.name = "out",
                       .type = Type::f32,
                       .role = Role::output,
                       .rows = base::ceil_divide(p.out_rows, p.panel_rows),
                       .cols = p.cols * p.panel_rows,
                       .split_rows = false,
                       .cols_per_col = p.panel_rows};
  operation.operands = {{"rows", Type::u32, Role::input, p.rows, 1, false, false},
                        {"values", Type::f32, Role::input, p.rows, p.cols, false},
                        out};
  return operation;
}

MapOperation operation_of(const CopyProblem& p) {
  MapOperation operation{
      .codelet = &kernels::copy_codelet, .phase = Phase::rearrange, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.type, Role::input, p.rows, p.cols},
                        {"out", p.type, Role::output, p.rows, p.cols}};
  return operation;
}

MapPlan plan(const Builder& builder, const GatherProblem& problem, const std::vector<Operand>& operands) {
  check(problem);
  check_operands(builder, problem, operands);
  if (builder.is_host()) return plan_map(gather_on_host(problem), builder.machine());
  MapPlan plan;
  plan.partition = partition_as_it_lies(builder, operands[1]);
  plan.chosen = predict(builder, plan.partition, operands,
                        [&](const Builder& scratch, const MapPlan&, std::span<const Operand> copies) {
                          return build_exchange(scratch, problem, copies[0], copies[1]);
                        });
  plan.chosen.partition = to_string(plan.partition);
  plan.candidates = {plan.chosen};
  return plan;
}

program::StepId build(const Builder& builder, const GatherProblem& problem, const MapPlan& plan,
                      const std::vector<Operand>& operands) {
  check(problem);
  check_operands(builder, problem, operands);
  if (builder.is_host()) return build_map(builder, gather_on_host(problem), plan, operands);
  return build_exchange(builder, problem, operands[0], operands[1]);
}

}  // namespace tessera::ops
