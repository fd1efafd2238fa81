// Arithmetic on values of a graph that is composed of the graph's operations.
#pragma once

#include <tessera/graph.h>

namespace tessera::graph {

// For floating-point values.
/// x rounded to an integer: trunc rounds towards zero, floor rounds down, and round takes the nearest
/// integer, the even one for halves. The derivatives are 0.
Value trunc(Value x);
Value floor(Value x);
Value round(Value x);
/// The exact remainder of a / b: fmod has the sign of a, like C's function, and remainder the sign of b, like
/// Python's %.
Value fmod(Value a, Value b);
Value remainder(Value a, Value b);
/// The largest integer that is at most a / b, computed from the remainder as PyTorch does.
Value floor_divide(Value a, Value b);
/// x to a power that differs between elements; NaN for a negative x if the exponent is not an integer.
Value pow(Value x, Value exponent);

/// x with row ids[i] of its first dimension replaced by values[i, ...]; of equal ids the last one counts. The
/// ids are a list of u32; a run throws Error for an id that is not below the number of rows.
Value scatter(Value x, Value ids, Value values);

}  // namespace tessera::graph
