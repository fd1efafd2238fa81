#include "base/buffer.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tessera::base {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void FreeBuffer::operator()(std::byte* p) const { std::free(p); }

Buffer allocate_buffer(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const size_t padded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(alignment, padded)));
  if (buffer == nullptr) throw std::bad_alloc();
#ifdef __linux__
  if (alignment == kHugePage) madvise(buffer.get(), padded, MADV_HUGEPAGE);
#endif
  return buffer;
}

}  // namespace tessera::base
