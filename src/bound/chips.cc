#include "bound/chips.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "bound/chip_search.h"
#include "compiler/compile.h"
#include "ops/collective/collective.h"

namespace tessera::bound {
namespace {

using machine::Machine;
using ops::PlanCandidate;

class ChipSearch {
 public:
  ChipSearch(const Pattern& pattern, const ops::ProductProblem& problem, const Machine& machine,
             const ops::ForcedKnobs& force)
      : pattern_(pattern), problem_(problem), machine_(machine), force_(force) {}

  ChipPlan find() {
    const uint32_t most = machine_.chip_count();
    for (uint32_t chips = 1; chips <= most; chips *= 2)
      if (problem_.n % chips == 0 && problem_.n >= chips) consider(as_replicas(chips));
    for (uint32_t chips = 2; chips <= most && (chips <= kMostForSpeed || !best_.fits()); chips *= 2)
      consider(as_one(chips));
    return plan();
  }

 private:
  Machine chips(uint32_t count) const { return machine_.part(0, count * machine_.chip_tiles); }

  ChipPlan as_replicas(uint32_t count) const {
    ops::ProductProblem problem = problem_;
    problem.n /= count;
    ChipPlan plan{count, count, ops::plan_closed_product(pattern_, problem, chips(1), force_), chips(count)};
    ops::TileProductProgram& built = plan.planned.program;
    built.program.set_replicas(count);
    PlanCandidate& chosen = plan.planned.plan.chosen;
    if (problem.product == ProductKind::sddmm && count > 1) add_sum(plan);
    chosen.partition = count == 1
                           ? fmt::format("1 of {} chips: {}", machine_.chip_count(), chosen.partition)
                           : fmt::format("{} chips, each {} columns: {}", count, problem.n, chosen.partition);
    return plan;
  }

  /// Each replica sums over its own columns only.
  void add_sum(ChipPlan& plan) const {
    ops::TileProductProgram& built = plan.planned.program;
    const std::array variables = {built.operands.values.variable};
    const program::StepId sum = ops::all_reduce(built.program, chips(1), "sum of dW", variables);
    built.program.set_main(built.program.sequence({built.program.main(), sum}));
    PlanCandidate& chosen = plan.planned.plan.chosen;
    const compiler::Estimate estimate = built.dynamic ? built.dynamic->estimate(built.program, plan.machine)
                                                      : compiler::estimate(built.program, plan.machine);
    chosen.seconds = estimate.cycles.scaled(machine_.seconds(1));
    chosen.max_tile_bytes = estimate.memory.max_tile_bytes;
    if (!estimate.memory.fits() && chosen.rejected.empty())
      chosen.rejected = compiler::overflow_text(estimate.memory);
  }

  ChipPlan as_one(uint32_t count) const {
    ChipPlan plan{1, count, ops::plan_closed_product(pattern_, problem_, chips(count), force_), chips(count)};
    PlanCandidate& chosen = plan.planned.plan.chosen;
    chosen.partition = fmt::format("{} chips as one: {}", count, chosen.partition);
    return plan;
  }

  void consider(ChipPlan plan) {
    const PlanCandidate& chosen = considered_.emplace_back(plan.planned.plan.chosen);
    best_.consider({chosen.rejected.empty(), chosen.total(), static_cast<double>(chosen.max_tile_bytes)},
                   std::move(plan));
  }

  ChipPlan plan() {
    ops::TileProductPlan& plan = best_.best().planned.plan;
    for (PlanCandidate& candidate : considered_)
      if (candidate.rejected.empty() && candidate.partition != plan.chosen.partition)
        candidate.rejected = ops::slower_than(candidate, plan.chosen.total());
    plan.candidates.insert(plan.candidates.begin(), considered_.begin(), considered_.end());
    return std::move(best_.best());
  }

  const Pattern& pattern_;
  const ops::ProductProblem& problem_;
  const Machine& machine_;
  const ops::ForcedKnobs& force_;
  BestOnChips<ChipPlan> best_;
  std::vector<PlanCandidate> considered_;
};

}  // namespace

ChipPlan plan_on_chips(const Pattern& pattern, const ops::ProductProblem& problem, const Machine& machine,
                       const ops::ForcedKnobs& force) {
  return ChipSearch(pattern, problem, machine, force).find();
}

}  // namespace tessera::bound
