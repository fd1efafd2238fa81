// Shorthands for expressions of values.
#pragma once

#include <tessera/graph.h>

#include <optional>
#include <vector>

#include "onnx/known.h"

namespace tessera::onnx {

/// A number as a scalar of a value's type.
graph::Value number_like(graph::Value x, double number);
bool is_integer(graph::Value x);
/// A truth value: f32.
graph::Value truth(graph::Value holds);
graph::Value less_than(graph::Value a, double b);
graph::Value greater_than(graph::Value a, double b);
graph::Value negative(graph::Value x);
/// x / number: products with reciprocals are not that, unless these are powers of two.
graph::Value divided(graph::Value x, double number);
/// The whole number towards zero, and the largest that is not above.
graph::Value trunc(graph::Value x);
graph::Value floor(graph::Value x);
graph::Value round_to_even(graph::Value x);
/// Quotients of integers, rounded towards zero.
graph::Value whole_quotient(graph::Value a, graph::Value b);
/// Integers of 8 or 16 bits, as results of 32 bits wrap around to; others as they are.
graph::Value wrapped(graph::Value x, DataType type);

/// Elements of a dimension, by their positions.
graph::Value taken(graph::Value x, size_t dim, const std::vector<int64_t>& places);
/// The shape that two broadcast to. Throws UsageError if there is none.
Dims common_dims(const Dims& a, const Dims& b);
/// Throws UsageError for sizes that a graph has not.
graph::Shape as_shape(const Dims& dims);

}  // namespace tessera::onnx
