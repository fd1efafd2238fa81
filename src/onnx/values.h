// Shorthands for expressions of values.
#pragma once

#include <tessera/model.h>

#include <optional>
#include <vector>

#include "onnx/known.h"

namespace tessera::onnx {

/// A number as a scalar of a value's type.
model::Value number_like(model::Value x, double number);
bool is_integer(model::Value x);
/// A truth value: f32.
model::Value truth(model::Value holds);
model::Value less_than(model::Value a, double b);
model::Value greater_than(model::Value a, double b);
model::Value negative(model::Value x);
/// x / number: products with reciprocals are not that, unless these are powers of two.
model::Value divided(model::Value x, double number);
/// The whole number towards zero, and the largest that is not above.
model::Value trunc(model::Value x);
model::Value floor(model::Value x);
model::Value round_to_even(model::Value x);
/// Quotients of integers, rounded towards zero.
model::Value whole_quotient(model::Value a, model::Value b);
/// Integers of 8 or 16 bits, as results of 32 bits wrap around to; others as they are.
model::Value wrapped(model::Value x, DataType type);

/// Elements of a dimension, by their positions.
model::Value taken(model::Value x, size_t dim, const std::vector<int64_t>& places);
/// The shape that two broadcast to. Throws UsageError if there is none.
Dims common_dims(const Dims& a, const Dims& b);
/// Throws UsageError for sizes that a graph has not.
model::Shape as_shape(const Dims& dims);

}  // namespace tessera::onnx
