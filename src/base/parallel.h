// Parallel loops for modules below the engine, which cannot include its thread pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera::base {

/// Calls job(i) for each i < count, possibly on several threads at once, and returns when all calls have.
/// Rethrows an exception of one of the calls.
using ParallelFor = std::function<void(uint32_t count, const std::function<void(uint32_t)>& job)>;

/// A ParallelFor that runs the jobs one after another.
inline void serial_for(uint32_t count, const std::function<void(uint32_t)>& job) {
  for (uint32_t i = 0; i < count; ++i) job(i);
}

/// Calls work(i, stopped) for each i < count, in this order, on `threads` threads, of which the caller's is
/// one. When a call throws, `stopped` becomes true, no other call begins, and the exception is rethrown.
void run_parallel(size_t count, uint32_t threads,
                  const std::function<void(size_t, const std::atomic<bool>& stopped)>& work);

}  // namespace tessera::base
