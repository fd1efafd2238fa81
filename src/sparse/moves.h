// Moving many values, on several threads.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <span>

#include "base/parallel.h"

namespace tessera::sparse {

/// out[i] = in[places[i]], of elements of a type.
void take(std::span<const uint32_t> places, Type type, const std::byte* in, std::byte* out,
          const base::ParallelFor& parallel);

/// A copy of many bytes, shared out.
void copy_bytes(const void* from, void* to, size_t bytes, const base::ParallelFor& parallel);

}  // namespace tessera::sparse
