#include <fmt/format.h>
#include <tessera/error.h>

#include <array>

#include "ops/dense/host/host_dense.h"
#include "ops/dense/host/slice.h"
#include "ops/split.h"
#include "ops/types.h"
#include "program/cycles.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::FieldView;
using program::PhaseTimes;

void check(const HostDenseProblem& p, const Machine& machine) {
  constexpr uint32_t kMostColumns = ~uint32_t{0} / PanelLayout::kRows;
  if (machine.kind != machine::Kind::host)
    throw UsageError(fmt::format("weights in panels are for hosts; '{}' is none", machine.name));
  require_float(p.weights, "a product with a weight");
  require_float(p.values, "a product with activations");
  if (p.k > kMostColumns || p.m > kMostColumns)
    throw UsageError(fmt::format("a weight of {} × {} is too large for panels: a dimension may be at most {}",
                                 p.m, p.k, kMostColumns));
  check_kind(p.product);
  check_epilogue({.activation = p.activation});
  if (p.product != ProductKind::forward && (p.bias || p.activation != Activation::none))
    throw UsageError("only a forward product takes a bias or an activation");
  if (p.product != ProductKind::input_gradient && p.relu)
    throw UsageError("only an input gradient takes a ReLU");
  if (p.product == ProductKind::input_gradient && p.adds)
    throw UsageError("an input gradient is not added to a previous one");
  if (p.product != ProductKind::forward && p.window)
    throw UsageError("only a forward product takes what a window sees");
}

/// Panels; for the input gradient as many columns.
uint32_t units_of(const HostDenseProblem& p) {
  return PanelLayout{p.product == ProductKind::input_gradient ? p.k : p.m, 0}.rows();
}

HostDensePartition partition_of(const HostDenseProblem& p, uint32_t panel_parts, uint32_t col_parts) {
  const bool is_sddmm = p.product == ProductKind::sddmm, is_forward = p.product == ProductKind::forward;
  return {split_evenly(units_of(p), panel_parts),
          split_evenly(is_sddmm ? p.k : p.n, col_parts, is_forward ? 1 : PanelLayout::kRows)};
}

PhaseTimes cycles_of(const HostDenseProblem& problem, const DensePart& part, const Machine& m) {
  std::array<FieldView, program::kMaxFields> fields;
  size_t count = 0;
  for (DenseRole role : dense_roles(problem.product)) {
    const program::Box box = box_of(problem, part, role);
    fields[count++] = {nullptr, type_of(problem, role), box.rows, box.cols, box.cols, 1};
  }
  kernels::Window window = problem.window.value_or(kernels::Window());
  if (problem.window)
    fields[kernels::panel_forward_field::window].data = reinterpret_cast<std::byte*>(&window);
  const std::array<int64_t, kernels::panel_forward_param::count> params = {
      static_cast<int64_t>(problem.activation), part.row};
  const program::Codelet& codelet = dense_codelet(problem);
  return codelet.cost({std::span(fields).first(count), std::span(params).first(codelet.params.size())}, m);
}

/// Each phase as on the slowest thread.
PlanCandidate evaluate(const HostDenseProblem& problem, const HostDensePartition& partition,
                       const Machine& m) {
  PhaseTimes slowest;
  uint64_t scratch = 0;
  for (uint32_t i = 0; i < partition.panel_parts(); ++i)
    for (uint32_t j = 0; j < partition.col_parts(); ++j) {
      const DensePart part = part_of(problem, partition, i, j);
      const PhaseTimes cycles = cycles_of(problem, part, m);
      if (cycles.total() > slowest.total()) slowest = cycles;
      scratch += box_of(problem, part, DenseRole::scratch).elements() * sizeof(float);
    }
  slowest[program::Phase::sync] += program::sync_cycles(m, partition.tiles_used());
  return {fmt::format("{} × {} parts", partition.panel_parts(), partition.col_parts()),
          slowest.scaled(1 / m.clock_hz), scratch, ""};
}

}  // namespace

HostDensePlan plan_host_dense(const HostDenseProblem& problem, const Machine& machine) {
  check(problem, machine);
  std::vector<HostDensePartition> partitions;
  const auto add = [&](uint32_t panel_parts, uint32_t col_parts) {
    partitions.push_back(partition_of(problem, panel_parts, col_parts));
  };
  add(1, 1);
  for (uint32_t parts = machine.tiles; parts > 1; parts = (parts + 1) / 2) add(parts, machine.tiles / parts);
  if (machine.tiles > 1) add(1, machine.tiles);
  return fastest_of(std::move(partitions), [&](const HostDensePartition& partition) {
    return evaluate(problem, partition, machine);
  });
}

std::string to_string(const HostDensePlan& plan) {
  return fmt::format("{}; predicted {:.3g} us", plan.chosen.partition, plan.chosen.total() * 1e6);
}

}  // namespace tessera::ops
