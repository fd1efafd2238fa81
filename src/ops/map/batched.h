// Products of matrices that a program computes, many at a time.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// y = a · b for each of `matrices` pairs of matrices, of m × k and k × n, or their transposes. The matrices
/// of an operand lie one below the other. All are f32, f16 or bf16; sums are FP32.
struct BatchedProblem {
  uint32_t matrices = 1;
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  bool transpose_a = false;  ///< a is matrices · k × m
  bool transpose_b = false;  ///< b is matrices · n × k
  Type type = Type::f32;
};

/// Operands "a", "b", "y".
MapOperation operation_of(const BatchedProblem& problem);

}  // namespace tessera::ops
