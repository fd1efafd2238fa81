#include <fmt/format.h>
#include <tessera/error.h>

#include <limits>
#include <type_traits>

#include "ops/spmm_family.h"
#include "program/cycles.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::Box;
using program::PhaseTimes;

constexpr uint32_t kColumnGrain = 16;  // columns of a cache line of Y, which no two tiles share

/// Cuts columns into parts of nearly equal width that begin at cache lines.
std::vector<uint32_t> cut_columns(uint32_t n, uint32_t parts) {
  const uint32_t grains = (n + kColumnGrain - 1) / kColumnGrain;
  std::vector<uint32_t> begin;
  for (uint64_t p = 0; p <= parts; ++p)
    begin.push_back(std::min<uint32_t>(n, static_cast<uint32_t>(grains * p / parts) * kColumnGrain));
  begin.erase(std::unique(begin.begin(), begin.end()), begin.end());
  if (begin.size() == 1) begin.push_back(n);
  return begin;
}

/// Switches are 0 or 1; counts and sizes are at least 1.
template <class Knob>
void set_knob(std::string_view name, int64_t value, Knob& knob) {
  constexpr bool is_switch = std::is_same_v<Knob, bool> || std::is_enum_v<Knob>;
  int64_t most = 1;
  if constexpr (!is_switch) most = std::numeric_limits<Knob>::max();
  const int64_t least = is_switch ? 0 : 1;
  if (value < least || value > most)
    throw UsageError(fmt::format("{}={}: this knob takes {} to {}", name, value, least, most));
  knob = static_cast<Knob>(value);
}

template <class Family>
std::string describe(typename Family::Cut cut) {
  std::string text;
  Family::visit_knobs(cut, [&](std::string_view name, auto& knob) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, static_cast<int64_t>(knob));
  });
  return text;
}

template <class Family>
void apply(const ForcedKnobs& force, typename Family::Cut& cut) {
  for (const auto& [name, value] : force) {
    bool known = false;
    std::string names;
    Family::visit_knobs(cut, [&, wanted = std::string_view(name)](std::string_view knob_name, auto& knob) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", knob_name);
      if (knob_name != wanted) return;
      known = true;
      set_knob(knob_name, value, knob);
    });
    if (!known) throw UsageError(fmt::format("this plan has no knob '{}': it has {}", name, names));
  }
}

/// A cut with its parts, and what it is predicted to cost: each phase as its slowest tile has it.
template <class Family>
SpmmPlan weigh(const Family& family, const typename Family::Cut& cut, const SpmmProblem& problem,
               const Machine& m) {
  SpmmPlan plan;
  plan.cut = cut;
  plan.row_begin = family.row_parts(cut.row_parts);
  plan.col_begin = cut_columns(problem.n, cut.col_parts);
  PhaseTimes slowest;
  uint64_t scratch = family.prologue_bytes();
  for (size_t r = 0; r + 1 < plan.row_begin.size(); ++r)
    for (size_t c = 0; c + 1 < plan.col_begin.size(); ++c) {
      const Box units{plan.row_begin[r], plan.row_begin[r + 1] - plan.row_begin[r], plan.col_begin[c],
                      plan.col_begin[c + 1] - plan.col_begin[c]};
      const PhaseTimes cost = family.cost(cut, problem, units, m);
      if (cost.total() > slowest.total()) slowest = cost;
      scratch += family.scratch_floats(cut, units.cols) * sizeof(float);
    }
  slowest[program::Phase::sync] += program::sync_cycles(m, plan.tiles_used()) / m.clock_hz;
  slowest += family.prologue(plan.tiles_used(), m).scaled(1 / m.clock_hz);
  plan.chosen = {describe<Family>(cut), slowest, scratch, ""};
  if (plan.tiles_used() > m.tiles)
    plan.chosen.rejected = fmt::format("{} parts for {} tiles", plan.tiles_used(), m.tiles);
  return plan;
}

template <class Family>
SpmmPlan plan_family(const Family& family, const SpmmProblem& problem, const Machine& m,
                     const ForcedKnobs& force) {
  std::vector<SpmmPlan> plans;
  std::vector<PlanCandidate> candidates;
  std::vector<typename Family::Cut> seen;
  for (typename Family::Cut cut : family.candidates(problem, m)) {
    apply<Family>(force, cut);
    if (std::find(seen.begin(), seen.end(), cut) != seen.end()) continue;
    seen.push_back(cut);
    plans.push_back(weigh(family, cut, problem, m));
    candidates.push_back(plans.back().chosen);
  }
  SpmmPlan plan = std::move(plans[choose_fastest(candidates)]);
  plan.candidates = std::move(candidates);
  return plan;
}

template <class Family>
void check_knobs(const ForcedKnobs& force) {
  typename Family::Cut cut;
  apply<Family>(force, cut);
}

}  // namespace

std::string_view name_of(Product product) {
  switch (product) {
    case Product::forward: return "forward";
    case Product::input_gradient: return "input gradient";
    case Product::weight_gradient: return "weight gradient";
  }
  return "";
}

void check_spmm(uint32_t block_size, const ForcedKnobs& force) {
  if (block_size == 1) return check_knobs<Elements>(force);
  if (!sparse::is_kernel_block_size(block_size))
    throw UsageError(fmt::format("a block size of {} has no kernel on a host; use 1, 4, 8, 16 or 32", block_size));
  check_knobs<Blocks>(force);
}

SpmmPlan plan_spmm(const PackedWeight& weight, const SpmmProblem& problem, const Machine& machine,
                   const ForcedKnobs& force) {
  return with_family(weight, problem.transpose, [&](const auto& family) { return plan_family(family, problem, machine, force); });
}

std::string to_string(const SpmmPlan& plan) {
  return fmt::format("{}; {} × {} parts on {} tiles; predicted {:.3g} us", plan.chosen.cut,
                     plan.row_begin.size() - 1, plan.col_begin.size() - 1, plan.tiles_used(),
                     plan.chosen.total() * 1e6);
}

}  // namespace tessera::ops
