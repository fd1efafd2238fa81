// Elementwise functions of one to three matrices.
#pragma once

#include <optional>
#include <string>

#include "kernels/map/elementwise/elementwise.h"
#include "kernels/map/elementwise/exact.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// out = op(in), both rows × cols of one type: f32, f16 or bf16. May be in place.
struct UnaryProblem {
  kernels::Unary op = kernels::Unary::relu;
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  float factor = 1;  ///< for Unary::scale and offset
};

/// Shape of an operand of a binary operation: a matrix, or a part that is broadcast.
enum class Broadcast : uint8_t {
  none,    ///< rows × cols
  row,     ///< 1 × cols: repeated in every row
  column,  ///< rows × 1: repeated in every column
  scalar,  ///< 1 × 1
};

/// out = op(a, b), rows × cols; all of one type: f32, f16 or bf16, or u32 or i32 where the operation takes
/// integers. The result may be in place of an operand that is not broadcast. add_scaled also adds 16-bit
/// values to f32.
struct BinaryProblem {
  kernels::Binary op = kernels::Binary::add;
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  float factor = 1;  ///< for Binary::add_scaled
  Broadcast a = Broadcast::none;
  Broadcast b = Broadcast::none;
  std::optional<Type> addend = {};  ///< for Binary::add_scaled: the type of b, if it is another
};

/// out = op(a, b), rows × cols, all i32; a run throws Overflow if a result is beyond 32 bits.
struct ExactProblem {
  static constexpr Type type = Type::i32;

  kernels::Exact op = kernels::Exact::add;
  uint32_t rows = 0;
  uint32_t cols = 0;
  Broadcast a = Broadcast::none;
  Broadcast b = Broadcast::none;
};

/// out = a where the condition is not 0, else b; rows × cols, all of one type: f32, f16, bf16, u32 or
/// i32.
struct WhereProblem {
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  Broadcast condition = Broadcast::none;
  Broadcast a = Broadcast::none;
  Broadcast b = Broadcast::none;
};

/// An input of a rows × cols operation that broadcasts it.
MapOperand broadcast_operand(std::string name, Type type, uint32_t rows, uint32_t cols, Broadcast broadcast);

/// Operands "in", "out"; "a", "b", "out"; "condition", "a", "b", "out".
MapOperation operation_of(const UnaryProblem& problem);
MapOperation operation_of(const BinaryProblem& problem);
MapOperation operation_of(const ExactProblem& problem);
MapOperation operation_of(const WhereProblem& problem);

}  // namespace tessera::ops
