// Jobs on the threads of another library's OpenMP runtime.
#pragma once

#include <tessera/machine.h>

#include <cstdint>

namespace tessera::engine {

/// Calls call(job, thread) for thread = 0 … threads - 1 concurrently on the runtime given by use_openmp().
/// Returns false, without a call, if no runtime is given or it does not grant as many threads. Rethrows the
/// exception of the lowest thread that threw.
bool run_on_openmp(uint32_t threads, void (*call)(void* job, uint32_t thread), void* job);

}  // namespace tessera::engine
