#include "base/reserved_memory.h"

#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tessera::base {

void ReservedMemory::reserve(size_t bytes) {
  bytes_ = bytes;
#ifdef __linux__
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  madvise(data, bytes, MADV_NOHUGEPAGE);
#else
  void* data = std::calloc(bytes, 1);
  if (data == nullptr) throw std::bad_alloc();
#endif
  data_ = static_cast<std::byte*>(data);
}

ReservedMemory::~ReservedMemory() {
  if (data_ == nullptr) return;
#ifdef __linux__
  munmap(data_, bytes_);
#else
  std::free(data_);
#endif
}

}  // namespace tessera::base
