// Conversions of a matrix to another type.
#pragma once

#include "kernels/common/element_order.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// out = in, rows × cols, each of f32, f16, bf16, u32 or i32, or in of u8. Rounds once, to nearest even;
/// overflow is infinity. A conversion to integers truncates fractions; NaN becomes 0, and a number beyond the
/// type's range the nearest in range. Integers are converted to other integers modulo 2^32.
struct CastProblem {
  Type from = Type::f32;
  Type to = Type::f16;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// Operands "in", "out".
MapOperation operation_of(const CastProblem& problem);

/// Converts f32, f16 or bf16 to f16 or bf16 by stochastic rounding (base/stochastic_rounding.h). Element i of
/// the value is rounded by word i of the stream of (seed, training step, operation), so that the result does
/// not depend on machine, partition, threads or instruction set. `order` maps positions in the operands to
/// elements.
struct StochasticCastProblem {
  Type from = Type::f32;
  Type to = Type::f16;
  uint32_t rows = 0;
  uint32_t cols = 0;
  kernels::ElementOrder order = {};
  uint64_t seed = 0;
  uint32_t operation = 0;
  uint32_t substream_words = 0;  ///< number of words of the sub-stream: replica, micro-batch, calls
};

/// Operands "in", "step" (a row of u32: the number of the training step, and the words of the sub-stream),
/// "out".
MapOperation operation_of(const StochasticCastProblem& problem);

}  // namespace tessera::ops
