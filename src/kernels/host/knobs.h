// Vertices that are slices of a product on a host: their schedules from parameters, and their codelets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "kernels/common/codelet_list.h"
#include "machine/model/machine.h"

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

/// Defines the functions of codelet NAME by NAME(slice), NAME_reference(slice) and cost(slice, figures), and
/// the functions of NAME_assign, which does not read its result, as the same slice with a beta of 0.
#define TESSERA_DEFINE_SLICES(codelet, slice_of, beta, cost)                                                \
  void codelet##_reference(const program::Vertex& v) { codelet##_reference(slice_of(v)); }                  \
  void codelet##_simd(const program::Vertex& v) { codelet(slice_of(v)); }                                   \
  program::PhaseTimes codelet##_cost(const program::Vertex& v, const machine::Machine& m) {                 \
    return cost(slice_of(v), m.figures).scaled(m.clock_hz);                                                 \
  }                                                                                                         \
  static auto codelet##_assigned(const program::Vertex& v) {                                                \
    auto slice = slice_of(v);                                                                               \
    slice.beta = 0;                                                                                         \
    return slice;                                                                                           \
  }                                                                                                         \
  void codelet##_assign_reference(const program::Vertex& v) { codelet##_reference(codelet##_assigned(v)); } \
  void codelet##_assign_simd(const program::Vertex& v) { codelet(codelet##_assigned(v)); }                  \
  program::PhaseTimes codelet##_assign_cost(const program::Vertex& v, const machine::Machine& m) {          \
    return codelet##_cost(v, m);                                                                            \
  }
