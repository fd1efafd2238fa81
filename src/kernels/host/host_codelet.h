// Product kernels of hosts as codelets, in two variants: one adds beta times the previous result, the other
// writes the result without reading it.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// The fields, one of which becomes write-only.
template <size_t n>
constexpr std::array<program::FieldSpec, n> write_only(std::array<program::FieldSpec, n> fields,
                                                       size_t field) {
  fields[field].access = program::Access::out;
  return fields;
}

/// Sets the knobs of a schedule, which `visit_knobs(schedule, visit)` lists, from a vertex's parameters.
template <class Schedule, class VisitKnobs>
void take_knobs(std::span<const int64_t> params, Schedule& schedule, const VisitKnobs& visit_knobs) {
  size_t param = 0;
  visit_knobs(schedule, [&](std::string_view, auto& knob) {
    knob = static_cast<std::remove_reference_t<decltype(knob)>>(params[param++]);
  });
}

/// A codelet of hosts, one vertex per core.
constexpr program::Codelet host_codelet(std::string_view name, std::span<const program::FieldSpec> fields,
                                        std::span<const std::string_view> params,
                                        program::RunVertex reference, program::RunVertex simd,
                                        program::VertexCost cost, uint32_t code_bytes) {
  return {
      .name = name,
      .workers = program::Workers::whole_tile,
      .fields = fields,
      .params = params,
      .reference = reference,
      .simd = simd,
      .cost = cost,
      .code_bytes = code_bytes,
      .runs_on = program::RunsOn::hosts,
  };
}

/// Functions of a vertex whose kernel runs on a slice of the product: Kernel::slice_of(vertex), which refers
/// to its beta in Kernel::beta(slice); Kernel::run(slice), run_reference(slice) and cost(slice, figures).
template <class Kernel, bool reads_result>
struct HostVertex {
  static auto slice_of(const program::Vertex& v) {
    auto slice = Kernel::slice_of(v);
    if constexpr (!reads_result) Kernel::beta(slice) = 0;
    return slice;
  }
  static void simd(const program::Vertex& v) { Kernel::run(slice_of(v)); }
  static void reference(const program::Vertex& v) { Kernel::run_reference(slice_of(v)); }
  static program::PhaseTimes cost(const program::Vertex& v, const machine::Machine& m) {
    return Kernel::cost(Kernel::slice_of(v), m.figures).scaled(m.clock_hz);
  }
};

template <class Kernel, bool reads_result>
constexpr program::Codelet host_codelet(std::string_view name, std::span<const program::FieldSpec> fields,
                                        std::span<const std::string_view> params, uint32_t code_bytes) {
  using Functions = HostVertex<Kernel, reads_result>;
  return host_codelet(name, fields, params, Functions::reference, Functions::simd, Functions::cost,
                      code_bytes);
}

}  // namespace tessera::kernels
