// The threads that run supersteps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace tessera::engine {

/// A fork-join pool for bulk-synchronous work. Workers spin between jobs, by default for at most 50 µs, then
/// sleep. One pool serves the whole process; a team is one caller's turn with it.
///
/// If another library's OpenMP runtime is given (tessera/machine.h), its threads replace the workers.
///
/// If there are enough cores, each worker is pinned to a core other than the caller's: a scheduler would wake
/// threads on one core and leave them there for milliseconds. The caller is not pinned.
///
/// Callers that wait for each other while they have teams need pools of their own, each with a share of the
/// process's processors.
class Pool {
 public:
  /// One of several equal shares.
  struct Share {
    uint32_t number = 0;
    uint32_t of = 1;
  };

  /// The pool of this process; a forked process has its own.
  static Pool& shared();

  explicit Pool(std::chrono::microseconds spin = kSpin) : Pool(Share{}, spin) {}
  explicit Pool(Share share, std::chrono::microseconds spin = kSpin);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// The calling thread and `threads - 1` workers, until the team is destroyed. Other callers wait
  /// for their turn.
  class Team {
   public:
    Team(Pool& pool, uint32_t threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    uint32_t threads() const { return threads_; }

    /// Calls job(thread) for thread = 0 … threads() - 1 concurrently, the caller being thread 0, and returns
    /// when all have finished. Rethrows the exception of the lowest thread that threw.
    template <class Job>
    void run(const Job& job) {
      run(&invoke<Job>, const_cast<void*>(static_cast<const void*>(&job)));
    }

   private:
    friend class Pool;
    using Invoke = void (*)(void* job, uint32_t thread);

    template <class Job>
    static void invoke(void* job, uint32_t thread) {
      (*static_cast<const Job*>(job))(thread);
    }
    void run(Invoke call, void* job);
    void run_on_workers(Invoke call, void* job);

    Pool& pool_;
    std::unique_lock<std::mutex> turn_;
    uint32_t threads_;
  };

 private:
  struct Worker;
  static constexpr std::chrono::microseconds kSpin{50};

  std::vector<int> find_cpus() const;
  void grow(uint32_t workers);
  void bind(uint32_t workers);
  void work(Worker& worker);

  const std::chrono::microseconds spin_;
  const Share share_;
  std::vector<int> cpus_;  ///< of its share, one CPU of each core first
  uint32_t bindings_;      ///< of the process, when these were found
  std::mutex turn_;
  std::vector<std::unique_ptr<Worker>> workers_;
  alignas(64) std::atomic<uint32_t> pending_{0};
};

/// Parallel loops on up to `threads` threads of the process's pool, for modules below that cannot include it.
/// Must not be used while the caller has a team.
base::ParallelFor on_pool(uint32_t threads);

}  // namespace tessera::engine
