// Elementwise functions of one and two operands. FP32 arithmetic on f32, f16 and bf16, rounded once.
#pragma once

#include <cstdint>

#include "program/codelet.h"

// The list of all operations.
// gelu: x/2 · (1 + erf(x/√2)). scale: factor · x. offset: x + factor.
#define TESSERA_UNARY_OPERATIONS(X) \
  X(relu)                           \
  X(gelu) X(neg) X(scale) X(exp) X(log) X(sqrt) X(reciprocal) X(tanh) X(sigmoid) X(square) X(abs) X(offset)
// add_scaled: a + factor · b. maximum, minimum: NaN if either is. equal: 1 where a = b, else 0.
// Gradients, of an upstream gradient a: relu_gradient: a, but 0 where b ≤ 0 (b is ReLU's input or output);
// gelu_gradient: a · gelu'(b), b being the input; tanh_gradient: a · (1 − b²) and sigmoid_gradient: a · b ·
// (1 − b), b being the output.
#define TESSERA_BINARY_OPERATIONS(X) \
  X(add)                             \
  X(sub)                             \
  X(mul)                             \
  X(add_scaled)                      \
  X(div) X(maximum) X(minimum) X(equal) X(relu_gradient) X(gelu_gradient) X(tanh_gradient) X(sigmoid_gradient)

namespace tessera::kernels {

#define TESSERA_ENUMERATOR(name) name,
enum class Unary : uint8_t { TESSERA_UNARY_OPERATIONS(TESSERA_ENUMERATOR) };
enum class Binary : uint8_t { TESSERA_BINARY_OPERATIONS(TESSERA_ENUMERATOR) };
#undef TESSERA_ENUMERATOR

/// Whether an operation has a factor as its parameter.
constexpr bool takes_factor(Unary op) { return op == Unary::scale || op == Unary::offset; }
constexpr bool takes_factor(Binary op) { return op == Binary::add_scaled; }

/// out = op(in), with the factor of an operation that takes one. Fields of one shape and type.
void apply_unary(Unary op, float factor, const program::FieldView& in, const program::FieldView& out);

/// out = op(a, b), likewise. Fields of one type; a and b have the shape of `out`, or are a single row or
/// column that is broadcast.
void apply_binary(Binary op, float factor, const program::FieldView& a, const program::FieldView& b,
                  const program::FieldView& out);

}  // namespace tessera::kernels
