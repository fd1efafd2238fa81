// Shorthands for expressions of values.
#pragma once

#include <tessera/arithmetic.h>
#include <tessera/graph.h>

#include <cstdint>
#include <span>
#include <vector>

#include "onnx/known.h"

namespace tessera::onnx {

/// Integers as a constant: the sum of two halves if FP32 cannot hold one of them.
graph::Value whole_numbers(graph::Graph& graph, std::span<const int64_t> numbers, const graph::Shape& shape,
                           Type type);
/// A number as a scalar of a value's type.
graph::Value number_like(graph::Value x, double number);
bool is_integer(graph::Value x);
/// A truth value: f32.
graph::Value truth(graph::Value holds);
graph::Value less_than(graph::Value a, double b);
graph::Value greater_than(graph::Value a, double b);
graph::Value negative(graph::Value x);
/// |x|.
graph::Value magnitude(graph::Value x);
/// Converts floating-point numbers to FP32: squares and sums of 16-bit numbers may overflow where their roots
/// and logarithms do not.
graph::Value widened(graph::Value x);
/// x / number. A product with the reciprocal would differ, unless the number is a power of two.
graph::Value divided(graph::Value x, double number);
/// Quotient of integers, rounded towards zero.
graph::Value whole_quotient(graph::Value a, graph::Value b);
/// Results of 32 bits, wrapped around to integers of 8 or 16 bits; other types unchanged.
graph::Value wrapped(graph::Value x, DataType type);

/// The elements of a dimension at these positions.
graph::Value taken(graph::Value x, size_t dim, const std::vector<int64_t>& places);
/// The product of the elements of a dimension, whose size becomes 1.
graph::Value product_over(graph::Value x, uint32_t dim);
/// The shape to which both shapes broadcast. Throws UsageError if there is none.
Dims common_dims(const Dims& a, const Dims& b);
/// The sizes as a shape of a graph. Throws UsageError for sizes that a graph does not support.
graph::Shape as_shape(const Dims& dims);

}  // namespace tessera::onnx
