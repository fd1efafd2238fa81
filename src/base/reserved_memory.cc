#include "base/reserved_memory.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cstdlib>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tessera::base {

void ReservedMemory::reserve(size_t bytes, [[maybe_unused]] bool in_huge_pages) {
  bytes_ = bytes;
  const auto refuse = [&] {
    throw Error(
        fmt::format("there is no address space for {} bytes of variables: raise the limit of this "
                    "process (ulimit -v), or make the network smaller",
                    bytes));
  };
#ifdef __linux__
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) refuse();
  madvise(data, bytes, in_huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
  void* data = std::calloc(bytes, 1);
  if (data == nullptr) refuse();
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
