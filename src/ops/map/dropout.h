// Dropout.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// out = in / keep where number i of a random stream, in [0, 1), is below `keep`, else 0; i is the element's
/// position in row-major order. The stream is determined by (seed, training step, operation) (base/random.h):
/// its numbers do not depend on machine, partition, threads or instruction set. rows × cols of f32, f16 or
/// bf16. If transposed, the operands store the transpose of a cols × rows matrix, and the mask is the mask of
/// the matrix. May be in place. The gradient is the same problem, applied to the upstream gradient.
struct DropoutProblem {
  Type type = Type::f32;
  uint32_t rows = 0;  ///< rows of the operands as they are stored
  uint32_t cols = 0;
  float keep = 1;  ///< probability of keeping an element
  uint64_t seed = 0;
  uint32_t operation = 0;
  bool transposed = false;
  uint32_t substream_words = 0;  ///< number of words of the sub-stream: replica, micro-batch, calls
};

/// Operands "in", "step" (a row of u32: the number of the training step, and the words of the sub-stream),
/// "out". Throws UsageError unless keep is above 0 and at most 1.
MapOperation operation_of(const DropoutProblem& problem);

}  // namespace tessera::ops
