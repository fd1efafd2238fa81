#include "engine/work_sharing.h"

#include <thread>

#include "base/pause.h"

namespace tessera::engine {

void Helper::share(uint32_t count, Job job, const void* context) {
  job_ = job;
  context_ = context;
  count_ = count;
  phase_ = clock.phase();
  next_.store(0, std::memory_order_relaxed);
  // Whoever sees it open has counted itself as a helper before; it is closed before they are counted.
  struct Opening {
    Helper& owner;
    ~Opening() {
      owner.open_.store(false);
      while (owner.helpers_.load() != 0) base::pause();
    }
  };
  const Opening opening{*this};
  open_.store(true);
  work_on(*this);
}

bool Helper::help(Helper& owner) {
  if (!owner.open_.load(std::memory_order_relaxed)) return false;
  struct Helping {
    std::atomic<uint32_t>& count;
    ~Helping() { count.fetch_sub(1); }
  };
  owner.helpers_.fetch_add(1);
  const Helping helping{owner.helpers_};
  if (!owner.open_.load() || owner.group_ != group_) return false;
  if (owner.next_.load(std::memory_order_relaxed) >= owner.count_) return false;
  clock.enter(owner.phase_);
  work_on(owner);
  clock.enter(program::Phase::sync);
  return true;
}

void Helper::work_on(Helper& owner) {
  for (uint32_t i; (i = owner.next_.fetch_add(1, std::memory_order_relaxed)) < owner.count_;)
    owner.job_(owner.context_, i, scratch_);
}

void Helpers::start(uint32_t threads) {
  threads_ = threads;
  for (uint32_t t = 0; t < threads; ++t) members_[t].reset();
  working_.store(threads, std::memory_order_relaxed);
}

void Helpers::help_others(uint32_t thread) {
  constexpr uint32_t kSpins = 2000;  // about 50 µs; then it looks now and then, and leaves the core to others
  constexpr uint32_t kSpinsPerYield = 64;
  Helper& self = members_[thread];
  self.clock.enter(program::Phase::sync);
  for (uint32_t spins = 0; working_.load(std::memory_order_acquire) != 0; ++spins) {
    bool helped = false;
    for (uint32_t t = 1; t < threads_; ++t) helped |= self.help(members_[(thread + t) % threads_]);
    if (helped) {
      spins = 0;
    } else if (spins >= kSpins) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    } else if (spins % kSpinsPerYield == kSpinsPerYield - 1) {
      std::this_thread::yield();
    } else {
      base::pause();
    }
  }
}

}  // namespace tessera::engine
