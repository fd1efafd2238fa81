#include <fmt/format.h>
#include <tessera/error.h>

#include "ops/knobs.h"
#include "ops/sparse/host/families.h"
#include "program/cycles.h"

namespace tessera {

std::string_view name_of(ProductKind kind) {
  switch (kind) {
    case ProductKind::forward: return "forward";
    case ProductKind::input_gradient: return "input gradient";
    case ProductKind::sddmm: return "SDDMM";
  }
  return "";
}

namespace ops {
namespace {

using machine::Machine;
using program::Box;
using program::PhaseTimes;

constexpr uint32_t kColumnGrain = 16;  // columns of a cache line of Y

/// A partition and its predicted cost: each phase as on its slowest tile.
template <class Family>
HostPlan evaluate(const Family& family, const typename Family::Schedule& schedule, const HostProblem& problem,
                  const Machine& m) {
  HostPlan plan;
  HostPartition& partition = plan.partition;
  partition.schedule = schedule;
  partition.row_begin = family.row_parts(schedule.row_parts);
  partition.col_begin = family.col_parts(schedule, problem);
  PhaseTimes slowest;
  const uint32_t tiles = partition.tiles_used();
  uint64_t scratch = family.bytes_between_steps(schedule, tiles);
  for (size_t r = 0; r + 1 < partition.row_begin.size(); ++r)
    for (size_t c = 0; c + 1 < partition.col_begin.size(); ++c) {
      const Box units{partition.row_begin[r], partition.row_begin[r + 1] - partition.row_begin[r],
                      partition.col_begin[c], partition.col_begin[c + 1] - partition.col_begin[c]};
      const PhaseTimes cost = family.cost(schedule, problem, units, m);
      if (cost.total() > slowest.total()) slowest = cost;
      scratch += family.scratch_floats(schedule, problem, units) * sizeof(float);
    }
  slowest[program::Phase::sync] += program::sync_cycles(m, tiles) / m.clock_hz;
  slowest += family.other_steps(schedule, tiles, m).scaled(1 / m.clock_hz);
  plan.chosen = {describe_knobs<Family>(schedule), slowest, scratch, ""};
  if (tiles > m.tiles) plan.chosen.rejected = fmt::format("{} parts for {} tiles", tiles, m.tiles);
  return plan;
}

/// Schedules for all threads; and for one, which need not start and wait for others.
template <class Family>
std::vector<typename Family::Schedule> candidates_of(const Family& family, const HostProblem& problem,
                                                     const Machine& machine) {
  std::vector<typename Family::Schedule> schedules = family.candidates(problem, machine);
  if (machine.tiles == 1) return schedules;
  Machine alone = machine;
  alone.tiles = 1;
  for (const typename Family::Schedule& schedule : family.candidates(problem, alone))
    schedules.push_back(schedule);
  return schedules;
}

HostPlan plan_panels(const HostDenseProblem& problem, const Machine& machine, const ForcedKnobs& force,
                     const HostLayouts& layouts) {
  HostDensePlan dense = plan_host_dense(problem, machine, force);
  const HostDenseSchedule schedule{dense.partition.panel_parts(), dense.partition.col_parts()};
  HostPlan plan;
  plan.partition = {schedule, std::move(dense.partition.panel_begin), std::move(dense.partition.col_begin)};
  plan.chosen = std::move(dense.chosen);
  plan.candidates = std::move(dense.candidates);
  plan.layouts = layouts;
  return plan;
}

}  // namespace

void check_kind(ProductKind product) {
  if (product > ProductKind::sddmm)
    throw UsageError(fmt::format("unknown product kind {} (choose from forward, input_gradient, sddmm)",
                                 static_cast<int>(product)));
}

void check_epilogue(const ProductProblem& problem) {
  if (problem.activation > Activation::relu6)
    throw UsageError(
        fmt::format("unknown activation {} (choose from none, relu, gelu, gelu_tanh, silu, relu6)",
                    static_cast<int>(problem.activation)));
  if (problem.product == ProductKind::sddmm && (problem.bias || problem.activation != Activation::none))
    throw UsageError("an SDDMM takes neither a bias nor an activation");
}

std::vector<uint32_t> split_columns(uint32_t n, uint32_t parts) {
  const uint32_t grains = (n + kColumnGrain - 1) / kColumnGrain;
  std::vector<uint32_t> begin;
  for (uint64_t p = 0; p <= parts; ++p)
    begin.push_back(std::min<uint32_t>(n, static_cast<uint32_t>(grains * p / parts) * kColumnGrain));
  begin.erase(std::unique(begin.begin(), begin.end()), begin.end());
  if (begin.size() == 1) begin.push_back(n);
  return begin;
}

bool takes_bf16(const PackedWeight& weight, const HostLayouts& layouts, const Machine& machine) {
  const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form);
  return blocks != nullptr && kernels::suits_bf16(blocks->type(), blocks->block_size()) && !layouts.window &&
         machine.figures.bf16_flops_per_cycle > 0;
}

void check_host_product(const ProductProblem& problem, uint32_t block_size, const ForcedKnobs& force) {
  check_kind(problem.product);
  if (problem.dense) return check_host_dense_knobs(force);
  const bool is_sddmm = problem.product == ProductKind::sddmm;
  if (block_size == 1) return is_sddmm ? check_knobs<ElementSddmm>(force) : check_knobs<Elements>(force);
  if (!sparse::is_kernel_block_size(block_size))
    throw UsageError(
        fmt::format("a block size of {} has no kernel on a host; use 1, 4, 8, 16 or 32", block_size));
  is_sddmm ? check_knobs<BlockSddmm>(force) : check_knobs<Blocks>(force);
}

HostPlan plan_host_product(const PackedWeight& weight, const ProductProblem& asked, const Machine& machine,
                           const ForcedKnobs& force, const HostLayouts& layouts) {
  check_kind(asked.product);
  check_epilogue(asked);
  if (layouts.window && asked.product == ProductKind::input_gradient)
    throw UsageError("an input gradient does not take what a window sees");
  if (asked.activations != Type::f32 &&
      (asked.activations != Type::bf16 || asked.product != ProductKind::forward ||
       !takes_bf16(weight, layouts, machine)))
    throw UsageError(fmt::format("no sparse {} product has activations of {} on this host: use f32",
                                 name_of(asked.product), name_of(asked.activations)));
  if (const auto* panels = std::get_if<sparse::PackedPanels>(&weight.form))
    return plan_panels(dense_problem(*panels, asked, layouts), machine, force, layouts);
  const HostProblem problem(asked, layouts);
  HostPlan plan = with_family(weight, problem.product, [&](const auto& family) {
    using Family = std::decay_t<decltype(family)>;
    return plan_fastest<Family>(candidates_of(family, problem, machine), force, [&](const auto& schedule) {
      return evaluate(family, schedule, problem, machine);
    });
  });
  plan.layouts = layouts;
  return plan;
}

std::string to_string(const HostPlan& plan) {
  return fmt::format("{}; {} × {} parts on {} tiles; predicted {:.3g} us", plan.chosen.partition,
                     plan.partition.row_parts(), plan.partition.col_parts(), plan.partition.tiles_used(),
                     plan.chosen.total() * 1e6);
}

}  // namespace ops
}  // namespace tessera
