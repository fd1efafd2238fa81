#include "support/allocations.h"

#include <cstdlib>
#include <new>

namespace tessera::test {

std::atomic<uint64_t> allocations{0};

}  // namespace tessera::test

// Sanitizers have their own, which these do not match: nothing is counted with them.
#if defined(__has_feature)
#define TESSERA_COUNTS_ALLOCATIONS !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer)
#else
#define TESSERA_COUNTS_ALLOCATIONS 1
#endif

#if TESSERA_COUNTS_ALLOCATIONS
namespace {

void* counted(void* memory) {
  tessera::test::allocations.fetch_add(1, std::memory_order_relaxed);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto line = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(line, (size + line - 1) / line * line));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif
