// Counts allocations of a test program that has allocations.cc among its sources.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::test {

// The thread sanitizer's own allocation functions cannot be replaced.
#if defined(__has_feature)
#define TESSERA_COUNTS_ALLOCATIONS !__has_feature(thread_sanitizer)
#else
#define TESSERA_COUNTS_ALLOCATIONS 1
#endif
inline constexpr bool kCountsAllocations = TESSERA_COUNTS_ALLOCATIONS;

extern std::atomic<uint64_t> allocations;

/// Allocations by all threads while f() runs; 0 unless they are counted.
template <class F>
uint64_t allocations_in(const F& f) {
  const uint64_t before = allocations;
  f();
  return allocations - before;
}

}  // namespace tessera::test
