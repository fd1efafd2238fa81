// Common parts of codelet costs.
#pragma once

#include <cstddef>
#include <span>

#include "machine/model/figures.h"
#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Data movement and arithmetic of a vertex on a host.
struct HostWork {
  double read_bytes = 0;
  double written_bytes = 0;
  double vector_operations = 0;  ///< per FP32 lane: arithmetic and conversions
};

/// Cycles of one core: the maximum of streaming the bytes from the cache level that holds all of them, with
/// every core active, and the arithmetic, plus a fixed part for entering the vertex.
double host_cycles(const machine::Machine& m, const HostWork& work);

/// Vector operations of a host to convert an element of a type to FP32, and to round it back.
double widen_operations(Type type);
double round_operations(Type type);

/// FP32 lanes of a host's vectors.
double lanes_of(const machine::HostFigures& f);

/// Bytes per cycle that a host's core streams from its own working set of this size.
double streaming_rate(double bytes, const machine::HostFigures& f);

/// Bytes per cycle at which a host's core repeatedly reads and writes a working set while other data streams
/// through the cache: all of it stays in the L2 cache up to a size of `stays` L2 caches, none from `lost` on.
double resident_rate(double bytes, double stays, double lost, const machine::HostFigures& f);

/// The bytes of a vertex that reads its fields before `first_written` and writes the others.
HostWork traffic_of(std::span<const program::FieldView> fields, size_t first_written);

/// Cycles to copy a cache line, besides fetching it.
inline constexpr double kLineBytes = 64;
inline constexpr double kCopyLineCycles = 10;

/// Bytes of a field's elements, and cycles in which a host's core streams them.
double bytes_of(const program::FieldView& field);
inline double stream_cycles(const program::FieldView& field, const machine::HostFigures& f) {
  return bytes_of(field) / streaming_rate(bytes_of(field), f);
}

/// Elements of a type in a vector of a modelled tile: half4, float2 (PopLibs). A type that such a tile lacks
/// counts as the one of its size.
double tile_vector_width(Type type);

/// ⌈elements / workers⌉: the slice of a tile's busiest worker.
double worker_slice(const machine::Machine& m, double elements);

/// Cycles on a tile of an elementwise operation, from the cycles of each vector and further ones of each
/// worker; W = workers: 11 + W(26 half | 29 float + all of these) (PopLibs, binary operations; assumed equal
/// for others).
double tile_elementwise_cycles(const machine::Machine& m, Type type, double elements, double vector_cycles,
                               double worker_cycles = 0);

/// Times with all cycles in one phase.
program::PhaseTimes in_phase(program::Phase phase, double cycles);

}  // namespace tessera::kernels
