// Parallel loops for modules below the engine, which cannot include its thread pool.
#pragma once

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

}  // namespace tessera::base
