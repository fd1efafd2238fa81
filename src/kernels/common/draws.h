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

/// The seed of the sub-stream whose numbers are the words of a row of u32 from word `first` on.
inline uint64_t seed_of_substream(const program::FieldView& row, uint32_t first, uint64_t seed) {
  for (uint32_t i = first; i < row.cols; ++i)
    seed = base::seed_of_substream(seed, i - first, static_cast<uint32_t>(number_at(row, 0, i)));
  return seed;
}

/// The draws of a vertex. `step` is a row of u32: the step and the numbers of the sub-stream, which determine
/// its seed (seed_of_substream).
inline Draws draws_at(const program::FieldView& step, uint64_t seed, uint32_t operation) {
  return {seed_of_substream(step, 1, seed), static_cast<uint32_t>(number_at(step, 0, 0)), operation};
}

}  // namespace tessera::kernels
