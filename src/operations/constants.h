// Checks of the number types that operations take, and constants with which they combine values.
#pragma once

#include <tessera/graph.h>

#include <cstdint>

#include "graph/operation.h"

namespace tessera::graph {

/// Throws UsageError for a value of an integer type other than u32 and i32.
void require_number(const Signature& signature, const TensorType& value);

/// A constant of a given type, or of the type of `with`. Throws UsageError for an integer type that does not
/// hold the number, and for integers beyond 2^24, which constants do not hold.
Value number(Value with, double number);
Value number(Graph& graph, double number, Type type);

/// A u32 scalar constant, also for numbers that FP32 does not hold.
Value whole_number(Graph& graph, uint32_t number);

/// Converts indices from i32 to u32: negative indices become larger than every size.
Value as_indices(Value ids);

/// 0, 1, 2, … as [count].
Value count_to(Graph& graph, uint32_t count, Type type);

}  // namespace tessera::graph
