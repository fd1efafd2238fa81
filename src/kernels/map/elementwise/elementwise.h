// Elementwise functions of one to three operands. FP32 arithmetic on f32, f16 and bf16, rounded once; some
// also on u32 and i32, modulo 2^32.
#pragma once

#include <cstdint>

#include "program/codelet.h"

// The list of all operations.
// gelu: x/2 · (1 + erf(x/√2)). gelu_tanh: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))). silu: x · sigmoid(x).
// rsqrt: 1/√x. scale: factor · x. offset: x + factor.
#define TESSERA_UNARY_OPERATIONS(X) \
  X(relu)                           \
  X(gelu)                           \
  X(gelu_tanh)                      \
  X(silu)                           \
  X(neg)                            \
  X(scale)                          \
  X(exp)                            \
  X(log) X(sqrt) X(rsqrt) X(reciprocal) X(tanh) X(sigmoid) X(erf) X(sin) X(cos) X(square) X(abs) X(offset)
// add_scaled: a + factor · b. fmod: the exact remainder of a / b, with the sign of a. maximum, minimum: NaN
// if either is. Comparisons: 1 where they hold, else 0.
// Gradients, of an upstream gradient a: relu_gradient: a, but 0 where b ≤ 0 (b is ReLU's input or output);
// gelu_gradient, gelu_tanh_gradient, silu_gradient: a · f'(b), b being the input; tanh_gradient: a · (1 − b²)
// and sigmoid_gradient: a · b · (1 − b), b being the output.
#define TESSERA_BINARY_OPERATIONS(X) \
  X(add)                             \
  X(sub)                             \
  X(mul)                             \
  X(add_scaled)                      \
  X(div)                             \
  X(fmod)                            \
  X(maximum)                         \
  X(minimum)                         \
  X(equal)                           \
  X(not_equal)                       \
  X(less)                            \
  X(less_equal)                      \
  X(relu_gradient)                   \
  X(gelu_gradient) X(gelu_tanh_gradient) X(silu_gradient) X(tanh_gradient) X(sigmoid_gradient)

namespace tessera::kernels {

#define TESSERA_ENUMERATOR(name) name,
enum class Unary : uint8_t { TESSERA_UNARY_OPERATIONS(TESSERA_ENUMERATOR) };
enum class Binary : uint8_t { TESSERA_BINARY_OPERATIONS(TESSERA_ENUMERATOR) };
#undef TESSERA_ENUMERATOR

/// Whether an operation has a factor as its parameter.
constexpr bool takes_factor(Unary op) { return op == Unary::scale || op == Unary::offset; }
constexpr bool takes_factor(Binary op) { return op == Binary::add_scaled; }

constexpr bool is_comparison(Binary op) {
  return op == Binary::equal || op == Binary::not_equal || op == Binary::less || op == Binary::less_equal;
}
/// Whether an operation also takes integers.
constexpr bool takes_integers(Binary op) {
  return op == Binary::add || op == Binary::sub || op == Binary::mul || op == Binary::maximum ||
         op == Binary::minimum || is_comparison(op);
}

/// The result of an operation that takes_integers(), for u32 or i32.
template <Binary op, class Integer>
constexpr Integer of_integers(Integer a, Integer b) {
  // Signed arithmetic must not overflow.
  const auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  switch (op) {
    case Binary::add: return static_cast<Integer>(x + y);
    case Binary::sub: return static_cast<Integer>(x - y);
    case Binary::mul: return static_cast<Integer>(x * y);
    case Binary::maximum: return a > b ? a : b;
    case Binary::minimum: return a < b ? a : b;
    case Binary::equal: return a == b ? 1 : 0;
    case Binary::not_equal: return a != b ? 1 : 0;
    case Binary::less: return a < b ? 1 : 0;
    case Binary::less_equal: return a <= b ? 1 : 0;
    default: return a;
  }
}

/// Calls visit(T{}) with the C++ type of an integer of 32 bits.
template <class Visit>
void with_integer_type(Type type, const Visit& visit) {
  type == Type::i32 ? visit(int32_t{}) : visit(uint32_t{});
}

/// The functions below, on `count` contiguous elements of a type.
void run_unary(Unary op, Type type, float factor, const std::byte* in, size_t count, std::byte* out);
void run_binary(Binary op, Type type, float factor, const std::byte* a, const std::byte* b, size_t count,
                std::byte* out);
void run_where(Type type, const std::byte* condition, const std::byte* a, const std::byte* b, size_t count,
               std::byte* out);

/// out = op(in), with the factor of an operation that takes one. Fields of one shape and type.
void apply_unary(Unary op, float factor, const program::FieldView& in, const program::FieldView& out);

/// out = op(a, b), likewise. Fields of one type, but add_scaled also adds 16-bit b to f32 a; a and b have the
/// shape of `out`, or are a single row or column that is broadcast.
void apply_binary(Binary op, float factor, const program::FieldView& a, const program::FieldView& b,
                  const program::FieldView& out);

/// out = a where the condition is not 0, else b; fields likewise.
void apply_where(const program::FieldView& condition, const program::FieldView& a,
                 const program::FieldView& b, const program::FieldView& out);

}  // namespace tessera::kernels
