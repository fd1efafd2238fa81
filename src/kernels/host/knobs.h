// Schedules of products on hosts from a vertex's parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace tessera::kernels {

/// Sets the knobs of a schedule, which `visit_knobs(schedule, visit)` lists, from a vertex's parameters.
template <class Schedule, class VisitKnobs>
void take_knobs(std::span<const int64_t> params, Schedule& schedule, const VisitKnobs& visit_knobs) {
  size_t param = 0;
  visit_knobs(schedule, [&](std::string_view, auto& knob) {
    knob = static_cast<std::remove_reference_t<decltype(knob)>>(params[param++]);
  });
}

}  // namespace tessera::kernels
