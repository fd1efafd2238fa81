// A matrix in another type.
#pragma once

#include "kernels/common/element_order.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// out = in, rows × cols, each of f32, f16, bf16, u32 or i32. Rounds once, to nearest even; overflow is
/// infinity. To an integer, fractions are cut off, NaN becomes 0, and a number that the type does not hold
/// its nearest; integers become others modulo 2^32.
struct CastProblem {
  Type from = Type::f32;
  Type to = Type::f16;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// Operands "in", "out".
MapOperation operation_of(const CastProblem& problem);

/// The same of f32, f16 or bf16, rounded to f16 or bf16 stochastically (base/stochastic_rounding.h): the
/// value's element i by word i of the stream of (seed, training step, operation), so that the result does not
/// depend on machine, partition, threads or instruction set. `order` says which elements the operands store
/// where.
struct StochasticCastProblem {
  Type from = Type::f32;
  Type to = Type::f16;
  uint32_t rows = 0;
  uint32_t cols = 0;
  kernels::ElementOrder order = {};
  uint64_t seed = 0;
  uint32_t operation = 0;
  uint32_t substream_words = 0;  ///< of numbers of their own: of a replica, a micro-batch, a call
};

/// Operands "in", "step" (a row of u32: the number of the training step, and the words of the sub-stream),
/// "out".
MapOperation operation_of(const StochasticCastProblem& problem);

}  // namespace tessera::ops
