// Knobs of a schedule by name: a family of kernels lists them with visit_knobs(schedule, visit).
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/plan.h"

namespace tessera::ops {

/// Sets a knob. Throws UsageError unless a switch is 0 or 1, and a count or size at least 1.
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

/// "row_parts=2 panel_cols=64"
template <class Family>
std::string describe_knobs(typename Family::Schedule schedule) {
  std::string text;
  Family::visit_knobs(schedule, [&](std::string_view name, auto& knob) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, static_cast<int64_t>(knob));
  });
  return text;
}

/// Sets the forced knobs. Throws UsageError for a knob that the family lacks, or a value out of range.
template <class Family>
void apply_knobs(const ForcedKnobs& force, typename Family::Schedule& schedule) {
  for (const auto& [name, value] : force) {
    bool known = false;
    std::string names;
    Family::visit_knobs(schedule,
                        [&, wanted = std::string_view(name)](std::string_view knob_name, auto& knob) {
                          names += fmt::format("{}{}", names.empty() ? "" : ", ", knob_name);
                          if (knob_name != wanted) return;
                          known = true;
                          set_knob(knob_name, value, knob);
                        });
    if (!known) throw UsageError(fmt::format("unknown knob '{}' (choose from {})", name, names));
  }
}

/// Checks forced knobs. Throws as apply_knobs() does.
template <class Family>
void check_knobs(const ForcedKnobs& force) {
  typename Family::Schedule schedule;
  apply_knobs<Family>(force, schedule);
}

/// The fastest of a family's schedules, and the costs of all. Forced knobs are set in each schedule, and each
/// is costed once.
template <class Family, class Evaluate>
auto plan_fastest(const std::vector<typename Family::Schedule>& schedules, const ForcedKnobs& force,
                  const Evaluate& evaluate) {
  std::vector<decltype(evaluate(schedules[0]))> plans;
  std::vector<PlanCandidate> candidates;
  std::vector<typename Family::Schedule> seen;
  for (typename Family::Schedule schedule : schedules) {
    apply_knobs<Family>(force, schedule);
    if (std::find(seen.begin(), seen.end(), schedule) != seen.end()) continue;
    seen.push_back(schedule);
    plans.push_back(evaluate(schedule));
    candidates.push_back(plans.back().chosen);
  }
  auto plan = std::move(plans[choose_fastest(candidates)]);
  plan.candidates = std::move(candidates);
  return plan;
}

}  // namespace tessera::ops
