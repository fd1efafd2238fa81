// Locks that a forked process does not wait for.
#pragma once

#include <pthread.h>
#include <tessera/error.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace tessera::base {

/// The number of forks that led to this process since the first call.
inline uint32_t forks() {
  static std::atomic<uint32_t> count{0};
  static const int when_forked = pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1); });
  static_cast<void>(when_forked);
  return count.load(std::memory_order_relaxed);
}

/// A recursive mutex. A forked process has none of its parent's other threads: whatever one of them had
/// locked at the fork stays locked and half-changed there, and lock() throws Error.
class ForkedMutex {
 public:
  ForkedMutex() : uses_(state_of(forks(), 0)) {}
  ForkedMutex(const ForkedMutex&) = delete;
  ForkedMutex& operator=(const ForkedMutex&) = delete;

  void lock() {
    begin_use();
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    uses_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  static uint64_t state_of(uint32_t process, uint32_t uses) { return uint64_t{process} << 32 | uses; }

  /// Counts a use before the mutex is locked, so that none is missed by a fork.
  void begin_use() {
    const uint32_t process = forks();
    uint64_t before = uses_.load(std::memory_order_relaxed), after = 0;
    do {
      const bool is_of_parent = static_cast<uint32_t>(before >> 32) != process;
      if (is_of_parent && static_cast<uint32_t>(before) != 0)
        throw Error(
            "another thread was using this when this process was forked: it cannot be used here; make "
            "another one, or fork while no call is running");
      after = is_of_parent ? state_of(process, 1) : before + 1;
    } while (!uses_.compare_exchange_weak(before, after, std::memory_order_relaxed));
  }

  std::recursive_mutex mutex_;
  /// The number of threads that hold the mutex or wait for it, and of forks that led to their process.
  std::atomic<uint64_t> uses_;
};

}  // namespace tessera::base
