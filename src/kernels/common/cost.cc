#include "kernels/common/cost.h"

#include <algorithm>
#include <cmath>

namespace tessera::kernels {
namespace {

// Cycles from the engine's call to the first element, including dispatch on type and instruction set.
constexpr double kHostVertexCycles = 60;

// Beyond the L2 cache a store first reads its line (read for ownership).
constexpr double kReadForOwnership = 2;

double memory_bytes_per_cycle(const machine::HostFigures& f) {
  return std::min(f.memory_core_gbps, f.memory_gbps / f.threads) / f.ghz;
}

/// Cycles to stream through `work` if all of it was last touched at the level that holds it.
double stream_cycles(const machine::HostFigures& f, const HostWork& work) {
  const double near = work.read_bytes + work.written_bytes;
  const double far = work.read_bytes + kReadForOwnership * work.written_bytes;
  if (near <= static_cast<double>(f.l1_bytes)) return near / f.l1_bytes_per_cycle;
  if (near <= static_cast<double>(f.l2_bytes)) return near / f.l2_bytes_per_cycle;
  if (near <= static_cast<double>(f.l3_bytes) / f.threads) return far / f.l3_bytes_per_cycle;
  return far / memory_bytes_per_cycle(f);
}

}  // namespace

double lanes_of(const machine::HostFigures& f) { return std::max(4.0, f.flops_per_cycle / 4); }

// A core's operands that take less than half of its L2 cache stay there from one product to the next.
double streaming_rate(double bytes, const machine::HostFigures& f) {
  if (bytes <= static_cast<double>(f.l2_bytes) / 2) return f.l2_bytes_per_cycle;
  if (bytes * f.threads <= static_cast<double>(f.l3_bytes)) return f.l3_bytes_per_cycle;
  return memory_bytes_per_cycle(f);
}

double resident_rate(double bytes, double stays, double lost, const machine::HostFigures& f) {
  const double caches = bytes / static_cast<double>(f.l2_bytes);
  const double far = std::clamp((caches - stays) / (lost - stays), 0.0, 1.0);
  return 1 / ((1 - far) / f.l2_bytes_per_cycle + far / f.l3_bytes_per_cycle);
}

double host_cycles(const machine::Machine& m, const HostWork& work) {
  const machine::HostFigures& f = m.figures;
  const double operations_per_cycle = f.flops_per_cycle / 2;  // the figure counts a multiply-add as two
                                                              // operations
  const double arithmetic = work.vector_operations / operations_per_cycle;
  return kHostVertexCycles + std::max(stream_cycles(f, work), arithmetic);
}

// FP16 has conversion instructions; BF16 takes shifts, and integer arithmetic for rounding.
double widen_operations(Type type) {
  if (type == Type::f32) return 0;
  return type == Type::f16 ? 1 : 2;
}

double round_operations(Type type) {
  if (type == Type::f32) return 0;
  return type == Type::f16 ? 2 : 5;
}

double bytes_of(const program::FieldView& field) {
  return static_cast<double>(field.elements() * size_of(field.type));
}

HostWork traffic_of(std::span<const program::FieldView> fields, size_t first_written) {
  HostWork work;
  for (size_t f = 0; f < fields.size(); ++f)
    (f < first_written ? work.read_bytes : work.written_bytes) += bytes_of(fields[f]);
  return work;
}

double tile_vector_width(Type type) { return 8.0 / static_cast<double>(size_of(type)); }

double worker_slice(const machine::Machine& m, double elements) {
  return std::ceil(elements / m.workers_per_tile);
}

double tile_elementwise_cycles(const machine::Machine& m, Type type, double elements, double vector_cycles,
                               double worker_cycles) {
  constexpr double kSupervisorCycles = 11, kWorkerCyclesHalf = 26, kWorkerCyclesFloat = 29;
  const double vectors = std::ceil(worker_slice(m, elements) / tile_vector_width(type));
  const double worker = (size_of(type) == size_of(Type::f32) ? kWorkerCyclesFloat : kWorkerCyclesHalf) +
                        vector_cycles * vectors + worker_cycles;
  return kSupervisorCycles + m.workers_per_tile * worker;
}

program::PhaseTimes in_phase(program::Phase phase, double cycles) {
  program::PhaseTimes times;
  times[phase] = cycles;
  return times;
}

}  // namespace tessera::kernels
