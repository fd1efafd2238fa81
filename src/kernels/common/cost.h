// What the costs of codelets have in common.
#pragma once

#include <cstdint>

#include "machine/model/figures.h"
#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// What a vertex moves and computes on a host.
struct HostWork {
  double read_bytes = 0;
  double written_bytes = 0;
  double vector_operations = 0;  ///< per FP32 lane: arithmetic and conversions
};

/// Cycles of one core: the longer of streaming the bytes from the cache level that holds them all,
/// with every core busy, and the arithmetic; and a fixed part for entering the vertex.
double host_cycles(const machine::Machine& m, const HostWork& work);

/// Vector operations on a host that turn an element of a type into FP32, and round it back.
double widen_operations(Type type);
double round_operations(Type type);

/// FP32 lanes of a host's vectors.
double lanes_of(const machine::HostFigures& f);

/// Bytes a cycle that a core of a host streams of a working set of its own of so many bytes.
double streaming_rate(double bytes, const machine::HostFigures& f);

/// Bytes a cycle at which a core of a host reads and writes a working set again and again while streams pass
/// by: all of it stays in the L2 cache up to `stays` of such caches, none from `lost` of them on.
double resident_rate(double bytes, double stays, double lost, const machine::HostFigures& f);

/// Cycles of copying a cache line from one place to another, beside those of bringing it near.
inline constexpr double kLineBytes = 64;
inline constexpr double kCopyLineCycles = 10;

/// Bytes of a field's elements.
double bytes_of(const program::FieldView& field);

/// Elements of a type in a vector of a modelled tile: half4, float2 (PopLibs). A type that such a
/// tile lacks counts as the one of its size.
double tile_vector_width(Type type);

/// ⌈elements / workers⌉: what the busiest worker of a tile has.
double worker_slice(const machine::Machine& m, double elements);

/// All cycles in one phase.
program::PhaseTimes in_phase(program::Phase phase, double cycles);

}  // namespace tessera::kernels
