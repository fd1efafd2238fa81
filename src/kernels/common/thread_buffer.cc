#include "kernels/common/thread_buffer.h"

#include <hwy/aligned_allocator.h>

namespace tessera::kernels {

float* thread_buffer(size_t floats) {
  thread_local hwy::AlignedFreeUniquePtr<float[]> buffer;
  thread_local size_t size = 0;
  if (floats > size) {
    buffer = hwy::AllocateAligned<float>(floats);
    size = floats;
  }
  return buffer.get();
}

}  // namespace tessera::kernels
