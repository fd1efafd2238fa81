#include "engine/openmp.h"

#include <pthread.h>

#include <exception>
#include <mutex>

namespace tessera {
namespace {

OpenMpRuntime given;

}  // namespace

void use_openmp(const OpenMpRuntime& runtime) {
  // A forked child has none of the runtime's threads, which waits for them forever.
  static const int when_forked = pthread_atfork(nullptr, nullptr, [] { given = {}; });
  static_cast<void>(when_forked);
  given = runtime;
}

namespace engine {
namespace {

/// One parallel region. Its threads do nothing unless all are there: the threads of a job wait for each
/// other.
struct Region {
  uint32_t threads;
  void (*call)(void* job, uint32_t thread);
  void* job;
  bool is_complete = false;
  std::mutex mutex = {};
  uint32_t failed_thread = UINT32_MAX;  ///< the lowest
  std::exception_ptr failure = nullptr;

  static void enter(void* argument) {
    Region& region = *static_cast<Region*>(argument);
    const auto thread = static_cast<uint32_t>(given.thread_number());
    if (static_cast<uint32_t>(given.team_size()) != region.threads) return;
    if (thread == 0) region.is_complete = true;
    try {
      region.call(region.job, thread);
    } catch (...) {
      const std::lock_guard lock(region.mutex);
      if (thread > region.failed_thread) return;
      region.failed_thread = thread;
      region.failure = std::current_exception();
    }
  }
};

}  // namespace

bool run_on_openmp(uint32_t threads, void (*call)(void* job, uint32_t thread), void* job) {
  if (given.parallel == nullptr) return false;
  Region region{threads, call, job};
  given.parallel(&Region::enter, &region, threads, 0);
  if (region.failure != nullptr) std::rethrow_exception(region.failure);
  return region.is_complete;
}

}  // namespace engine
}  // namespace tessera
