// The random numbers that a vertex draws.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "kernels/common/element.h"

namespace tessera::kernels {

/// A stream of base/random.h.
struct Draws {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t operation = 0;

  base::RandomStream stream() const { return base::RandomStream(seed, step, operation); }
};

/// The draws of a vertex. `step` is a row of u32: the step and the numbers of the sub-stream, which determine
/// its seed (seed_of_substream).
inline Draws draws_at(const program::FieldView& step, uint64_t seed, uint32_t operation) {
  for (uint32_t i = 1; i < step.cols; ++i)
    seed = base::seed_of_substream(seed, i - 1, static_cast<uint32_t>(number_at(step, 0, i)));
  return {seed, static_cast<uint32_t>(number_at(step, 0, 0)), operation};
}

}  // namespace tessera::kernels
