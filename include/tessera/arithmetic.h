// Arithmetic of values beyond what operators of graphs are, made of these.
#pragma once

#include <tessera/graph.h>

namespace tessera::graph {

// Of floating-point values.
/// x rounded to a whole number: towards zero; down; and to the nearest, halves to the even one. Their
/// derivatives are 0.
Value trunc(Value x);
Value floor(Value x);
Value round(Value x);
/// The exact rest of a / b: with the sign of a, as C's; and with the sign of b, as Python's %.
Value fmod(Value a, Value b);
Value remainder(Value a, Value b);
/// The largest whole number that is not above a / b, as PyTorch computes it from the rest.
Value floor_divide(Value a, Value b);
/// x to a power that differs between elements; NaN for a negative x if the exponent is not a whole number.
Value pow(Value x, Value exponent);

/// x with values[i, ...] as its row ids[i], the row of its first dimension; of ids that are equal the last
/// counts. The ids are a list of u32; a run throws Error for an id beyond the rows.
Value scatter(Value x, Value ids, Value values);

}  // namespace tessera::graph
