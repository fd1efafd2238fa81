// Elementwise functions of one and two operands. FP32 arithmetic on f32, f16 and bf16, rounded once.
#pragma once

#include <cstdint>

#include "program/codelet.h"

// The list of all operations.
#define TESSERA_UNARY_OPERATIONS(X) X(relu) X(gelu) X(neg) X(scale)
// add_scaled: a + factor · b. relu_gradient: a, but 0 where b ≤ 0 (b is ReLU's input or output).
#define TESSERA_BINARY_OPERATIONS(X) X(add) X(sub) X(mul) X(add_scaled) X(relu_gradient)

namespace tessera::kernels {

#define TESSERA_ENUMERATOR(name) name,
enum class Unary : uint8_t { TESSERA_UNARY_OPERATIONS(TESSERA_ENUMERATOR) };
enum class Binary : uint8_t { TESSERA_BINARY_OPERATIONS(TESSERA_ENUMERATOR) };
#undef TESSERA_ENUMERATOR

/// out = op(in); `factor` is that of Unary::scale. Fields of one shape and type.
void apply_unary(Unary op, float factor, const program::FieldView& in, const program::FieldView& out);

/// out = op(a, b); `factor` is that of Binary::add_scaled. Fields of one type; a and b have the shape of
/// `out`, or are a single row or column that is broadcast.
void apply_binary(Binary op, float factor, const program::FieldView& a, const program::FieldView& b,
                  const program::FieldView& out);

}  // namespace tessera::kernels
