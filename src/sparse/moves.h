// Moves values within an array, on several threads.
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
  uint32_t none = 0;             ///< the value of `former` for no previous place: the value is now 0
  std::vector<uint32_t> former;  ///< by place of the ranges: its value's previous place, or none
  std::vector<Range> ranges;  ///< values stay within their range; places outside all ranges have not changed
};

/// Applies the moves to another array.
void follow(const Moves& moves, std::span<float> state, const base::ParallelFor& parallel);

/// Copies many bytes on several threads.
void copy_bytes(const void* from, void* to, size_t bytes, const base::ParallelFor& parallel);

}  // namespace tessera::sparse
