// Values that move to other places of an array, on several threads.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"

namespace tessera::sparse {

/// How values have moved within an array.
struct Moves {
  struct Range {
    uint64_t begin, end;
  };
  uint32_t none = 0;             ///< stands for no place: there is a zero now
  std::vector<uint32_t> former;  ///< of each place of a range: where its value was, or none
  std::vector<Range> ranges;     ///< values stay within each, and what lies in none has not moved
};

/// Lets another array follow.
void follow(const Moves& moves, std::span<float> state, const base::ParallelFor& parallel);

/// A copy of many bytes, shared out.
void copy_bytes(const void* from, void* to, size_t bytes, const base::ParallelFor& parallel);

}  // namespace tessera::sparse
