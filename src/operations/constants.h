// Numbers and integers that operations take, and constants that they combine values with.
#pragma once

#include <tessera/graph.h>

#include <cstdint>

#include "graph/operation.h"

namespace tessera::graph {

/// Throws UsageError for a value of other integers than u32 and i32.
void require_number(const Signature& signature, const TensorType& value);

/// A number in a type, by default that of a value. Throws UsageError for an integer type that does not hold
/// it, and for whole numbers beyond 2^24, which constants do not hold.
Value number(Value with, double number);
Value number(Graph& graph, double number, Type type);

/// A u32 scalar, also of numbers that FP32 does not hold.
Value whole_number(Graph& graph, uint32_t number);

/// Indices of i32 as u32: those below 0 are beyond every size.
Value as_indices(Value ids);

/// 0, 1, 2, … as [count].
Value count_to(Graph& graph, uint32_t count, Type type);

}  // namespace tessera::graph
