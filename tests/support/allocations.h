// Counts allocations of a test program that has allocations.cc among its sources.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::test {

extern std::atomic<uint64_t> allocations;

/// Allocations by all threads while f() runs.
template <class F>
uint64_t allocations_in(const F& f) {
  const uint64_t before = allocations;
  f();
  return allocations - before;
}

}  // namespace tessera::test
