#include <fmt/format.h>
#include <tessera/error.h>

#include <array>
#include <cstdint>
#include <vector>

#include "ops/dense/host/host_dense.h"
#include "ops/dense/host/slice.h"
#include "ops/knobs.h"
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
    throw UsageError(fmt::format("weights in panels are for hosts, not for '{}'", machine.name));
  require_float(p.weights, "a product with a weight");
  require_float(p.values, "a product with activations");
  if (p.k > kMostColumns || p.m > kMostColumns)
    throw UsageError(fmt::format("a weight of {} × {} is too large for panels: a dimension may be at most {}",
                                 p.m, p.k, kMostColumns));
  check_kind(p.product);
  check_epilogue({.activation = p.activation});
  if (p.product == ProductKind::sddmm && (p.bias || p.activation != Activation::none))
    throw UsageError("a weight gradient takes neither a bias nor an activation");
  if (p.product != ProductKind::input_gradient && p.relu)
    throw UsageError("only an input gradient takes a ReLU");
  const bool is_plain = !p.bias && p.activation == Activation::none && !p.adds && !p.arrays;
  if (p.product == ProductKind::input_gradient && p.window && (!is_plain || p.values != Type::f32))
    throw UsageError("an input gradient of images is in f32, in rows, and takes a ReLU alone");
  if (p.arrays && p.values != Type::f32)
    throw UsageError(fmt::format("matrices with any strides are in f32, not in {}", name_of(p.values)));
}

/// The planner's view of the kernels.
struct Panels {
  using Schedule = HostDenseSchedule;

  template <class Visit>
  static void visit_knobs(Schedule& schedule, const Visit& visit) {
    visit("row_parts", schedule.row_parts);
    visit("col_parts", schedule.col_parts);
  }
};

/// Panels; for the input gradient as many columns.
uint32_t units_of(const HostDenseProblem& p) {
  return PanelLayout{p.product == ProductKind::input_gradient ? cols_of_dx(p) : p.m, 0}.rows();
}

/// Rows of Y may be split anywhere; if its columns are contiguous, no two parts share a cache line. No two
/// parts add to the same image. Columns of dW are cache lines, of which a few fill a micro-tile.
HostDensePartition partition_of(const HostDenseProblem& p, const HostDenseSchedule& schedule) {
  const bool has_columns = p.arrays && p.arrays->y == Layout::row_major;
  const uint32_t grain = folds(p)                                            ? p.window->out_positions()
                         : takes_all_columns(p)                              ? p.k
                         : p.product == ProductKind::forward && !has_columns ? 1
                         : p.product == ProductKind::sddmm && p.values == Type::f32 ? PanelLayout::kRows / 2
                                                                                    : PanelLayout::kRows;
  return {split_evenly(units_of(p), schedule.row_parts),
          split_evenly(p.product == ProductKind::sddmm ? p.k : p.n, schedule.col_parts, grain)};
}

/// The strides of a part of an operand, without its elements.
FieldView view_of(const HostDenseProblem& p, const DensePart& part, DenseRole role) {
  const program::Box box = box_of(p, part, role);
  FieldView view{nullptr, type_of(p, role), box.rows, box.cols, box.cols, 1};
  if (role == DenseRole::x) view.row_stride = p.window ? images_of(p).cols : p.k;
  if (role == DenseRole::y) view.row_stride = p.m;
  const bool has_columns = p.arrays && ((role == DenseRole::x && p.arrays->x == Layout::row_major) ||
                                        (role == DenseRole::y && p.arrays->y == Layout::row_major));
  if (has_columns) view.row_stride = 1, view.col_stride = p.n;
  return view;
}

PhaseTimes cycles_of(const HostDenseProblem& problem, const DensePart& part, const Machine& m) {
  std::array<FieldView, program::kMaxFields> fields;
  size_t count = 0;
  kernels::Window window = problem.window.value_or(kernels::Window());
  for (DenseRole role : dense_roles(problem.product)) {
    fields[count] = view_of(problem, part, role);
    if (role == DenseRole::window && problem.window)
      fields[count].data = reinterpret_cast<std::byte*>(&window);
    ++count;
  }
  const std::vector<int64_t> params = dense_params(problem, part);
  return dense_codelet(problem).cost({std::span(fields).first(count), params}, m);
}

/// A partition and its predicted cost: each phase as on the slowest thread.
HostDensePlan evaluate(const HostDenseProblem& problem, const HostDenseSchedule& schedule, const Machine& m) {
  const HostDensePartition partition = partition_of(problem, schedule);
  PhaseTimes slowest;
  uint64_t scratch = 0;
  for (uint32_t i = 0; i < partition.panel_parts(); ++i)
    for (uint32_t j = 0; j < partition.col_parts(); ++j) {
      const DensePart part = part_of(problem, partition, i, j);
      const PhaseTimes cycles = cycles_of(problem, part, m);
      if (cycles.total() > slowest.total()) slowest = cycles;
      scratch += box_of(problem, part, DenseRole::scratch).elements() * sizeof(float);
    }
  const uint32_t tiles = partition.tiles_used();
  slowest[program::Phase::sync] += program::sync_cycles(m, tiles);
  HostDensePlan plan{
      partition, {describe_knobs<Panels>(schedule), slowest.scaled(1 / m.clock_hz), scratch, ""}, {}};
  if (tiles > m.tiles) plan.chosen.rejected = fmt::format("{} parts for {} tiles", tiles, m.tiles);
  return plan;
}

}  // namespace

void check_host_dense_knobs(const ForcedKnobs& force) { check_knobs<Panels>(force); }

HostDensePlan plan_host_dense(const HostDenseProblem& problem, const Machine& machine,
                              const ForcedKnobs& force) {
  check(problem, machine);
  std::vector<HostDenseSchedule> schedules = {{1, 1}};
  for (uint32_t parts = machine.tiles; parts > 1; parts = (parts + 1) / 2)
    schedules.push_back({parts, machine.tiles / parts});
  if (machine.tiles > 1) schedules.push_back({1, machine.tiles});
  return plan_fastest<Panels>(schedules, force, [&](const HostDenseSchedule& schedule) {
    return evaluate(problem, schedule, machine);
  });
}

}  // namespace tessera::ops
