// Matrices filled with one number.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// Fills a rows × cols matrix of any type with `value`, rounded to the type.
struct FillProblem {
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  float value = 0;
};

/// Operand "out". Throws UsageError for a value that an integer type does not hold.
MapOperation operation_of(const FillProblem& problem);

}  // namespace tessera::ops
