// Memory of a thread into which its vertices, one after another, copy their operands.
#pragma once

#include <cstddef>

namespace tessera::kernels {

/// At least `floats` uninitialised floats, aligned to a cache line. The memory belongs to the calling thread,
/// is valid until its next call, and is not freed, so that repeated runs do not allocate.
float* thread_buffer(size_t floats);

}  // namespace tessera::kernels
