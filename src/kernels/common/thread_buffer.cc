#include "kernels/common/thread_buffer.h"

#include <hwy/aligned_allocator.h>

#include <new>

namespace tessera::kernels {

float* thread_buffer(size_t floats) {
  thread_local hwy::AlignedFreeUniquePtr<float[]> buffer;
  thread_local size_t size = 0;
  if (floats > size) {
    size = 0;
    buffer = hwy::AllocateAligned<float>(floats);
    if (!buffer) throw std::bad_alloc();
    size = floats;
  }
  return buffer.get();
}

}  // namespace tessera::kernels
