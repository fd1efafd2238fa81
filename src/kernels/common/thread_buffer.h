// Memory in which vertices of a thread copy their operands, one after another.
#pragma once

#include <cstddef>

namespace tessera::kernels {

/// At least so many floats at the address of a cache line, with any contents: the thread's own, until it asks
/// again. It is kept, so that a run which is repeated does not allocate.
float* thread_buffer(size_t floats);

}  // namespace tessera::kernels
