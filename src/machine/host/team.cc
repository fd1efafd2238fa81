#include "machine/host/team.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "base/pause.h"
#include "machine/host/affinity.h"
#include "machine/host/detect.h"

namespace tessera::machine {
namespace {

using base::Clock;
using base::seconds_since;

/// A barrier that spins if each thread has its own processor, and otherwise yields.
class SpinBarrier {
 public:
  explicit SpinBarrier(unsigned threads) : threads_(threads) {}

  void wait() {
    const unsigned generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; generation_.load(std::memory_order_acquire) == generation; ++spins)
      if (spins >= kSpins) std::this_thread::yield();
  }

 private:
  static constexpr int kSpins = 1 << 14;
  const unsigned threads_;
  alignas(64) std::atomic<unsigned> arrived_{0};
  alignas(64) std::atomic<unsigned> generation_{0};
};

/// Runs body(thread) on threads 0 … threads - 1, the caller being the first, each on its own core as far as
/// possible.
void run_team(unsigned threads, const std::function<void(unsigned)>& body) {
  const std::vector<int> cpus = cpus_by_core();
  const auto bound_body = [&](unsigned thread) {
    const BoundHere bound(cpus[thread % cpus.size()]);
    body(thread);
  };
  std::vector<std::jthread> others;
  for (unsigned thread = 1; thread < threads; ++thread) others.emplace_back(bound_body, thread);
  bound_body(0);
}

}  // namespace

double best_round_seconds(unsigned threads, int rounds, const std::function<void(unsigned)>& work) {
  SpinBarrier barrier(threads);
  double best = INFINITY;
  run_team(threads, [&](unsigned thread) {
    for (int round = 0; round < rounds; ++round) {
      barrier.wait();
      const auto start = Clock::now();
      work(thread);
      barrier.wait();
      if (thread == 0) best = std::min(best, seconds_since(start));
    }
  });
  return best;
}

namespace {

/// The cache lines through which the threads of a superstep communicate.
class Superstep {
 public:
  explicit Superstep(unsigned threads) : epochs_(threads), threads_(threads) {}

  /// Starts a superstep on all other threads and takes part in it.
  void lead() {
    working_.store(threads_, std::memory_order_relaxed);
    inside_.store(threads_ - 1, std::memory_order_relaxed);
    for (unsigned t = 1; t < threads_; ++t) epochs_[t].value.fetch_add(1, std::memory_order_release);
    finish();
    spin([&] { return inside_.load(std::memory_order_acquire) == 0; });
  }

  void follow(unsigned thread, unsigned epoch) {
    spin([&] { return epochs_[thread].value.load(std::memory_order_acquire) == epoch; });
    finish();
    inside_.fetch_sub(1, std::memory_order_acq_rel);
  }

 private:
  struct alignas(64) Epoch {
    std::atomic<unsigned> value{0};
  };

  template <class Done>
  static void spin(const Done& done) {
    for (int spins = 0; !done(); ++spins) {
      base::pause();
      if (spins % 64 == 63) std::this_thread::yield();
    }
  }

  void finish() {
    working_.fetch_sub(1, std::memory_order_release);
    spin([&] { return working_.load(std::memory_order_acquire) == 0; });
  }

  std::vector<Epoch> epochs_;
  const unsigned threads_;
  alignas(64) std::atomic<unsigned> working_{0};
  alignas(64) std::atomic<unsigned> inside_{0};
};

}  // namespace

double superstep_seconds(unsigned threads) {
  if (threads == 1) return 0;
  constexpr unsigned kSupersteps = 4001;
  constexpr double kAlone = 2e-6;
  Superstep superstep(threads);
  std::vector<double> seconds;
  run_team(threads, [&](unsigned thread) {
    for (unsigned i = 1; i <= kSupersteps; ++i) {
      if (thread != 0) {
        superstep.follow(thread, i);
        continue;
      }
      Clock::time_point start = Clock::now();
      while (seconds_since(start) < kAlone) base::pause();
      start = Clock::now();
      superstep.lead();
      seconds.push_back(seconds_since(start));
    }
  });
  return base::median(seconds);
}

}  // namespace tessera::machine
