#include "heap_count.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<uint64_t> live{0};
std::atomic<uint64_t> peak{0};

}  // namespace

uint64_t live_bytes() { return live; }
uint64_t peak_bytes() { return peak; }
void restart_peak() { peak = live.load(); }

void* operator new(size_t bytes) {
  void* p = std::malloc(bytes);
  if (p == nullptr) throw std::bad_alloc();
  const uint64_t now = live += malloc_usable_size(p);
  uint64_t highest = peak;
  while (now > highest && !peak.compare_exchange_weak(highest, now)) {
  }
  return p;
}
void operator delete(void* p) noexcept {
  if (p != nullptr) live -= malloc_usable_size(p);
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
