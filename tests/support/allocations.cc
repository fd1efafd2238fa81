#include "support/allocations.h"

#include <cstdlib>
#include <new>

namespace tessera::test {

std::atomic<uint64_t> allocations{0};

}  // namespace tessera::test

#if TESSERA_COUNTS_ALLOCATIONS
namespace {

void* counted(void* memory) {
  tessera::test::allocations.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* required(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* allocate(std::size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void* allocate(std::size_t size, std::align_val_t alignment) {
  const auto line = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(line, (size + line - 1) / line * line));
}

}  // namespace

// All forms, as the address sanitizer's own do not match these.
void* operator new(std::size_t size) { return required(allocate(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return required(allocate(size, alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, alignment);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif
