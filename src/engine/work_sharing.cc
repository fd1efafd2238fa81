#include "engine/work_sharing.h"

#include <chrono>
#include <thread>

#include "base/pause.h"

namespace tessera::engine {

void SharingThread::share(uint32_t count, Job job, const void* context) {
  job_ = job;
  context_ = context;
  count_ = count;
  if (is_timed_) phase_ = clock.phase();
  next_.store(0, std::memory_order_relaxed);
  // Whoever sees it open has already been counted as a helper; it is closed before helpers are counted.
  struct Opening {
    SharingThread& owner;
    ~Opening() {
      owner.open_.store(false);
      while (owner.helpers_.load() != 0) base::pause();
    }
  };
  const Opening opening{*this};
  open_.store(true);
  work_on(*this);
}

bool SharingThread::help(SharingThread& owner) {
  if (!owner.open_.load(std::memory_order_relaxed)) return false;
  struct Helping {
    std::atomic<uint32_t>& count;
    ~Helping() { count.fetch_sub(1); }
  };
  owner.helpers_.fetch_add(1);
  const Helping helping{owner.helpers_};
  if (!owner.open_.load() || !can_help(owner)) return false;
  if (owner.next_.load(std::memory_order_relaxed) >= owner.count_) return false;
  enter(owner.phase_);
  work_on(owner);
  enter(program::Phase::sync);
  return true;
}

void SharingThread::work_on(SharingThread& owner) {
  for (uint32_t i; (i = owner.next_.fetch_add(1, std::memory_order_relaxed)) < owner.count_;)
    owner.job_(owner.context_, i, scratch_.data());
}

void WorkSharing::reserve(uint32_t threads) {
  if (threads <= room_) return;
  members_ = std::make_unique<SharingThread[]>(threads);
  room_ = threads;
}

void WorkSharing::start(uint32_t threads, bool is_timed) {
  threads_ = threads;
  is_timed_ = is_timed;
  working_.store(threads, std::memory_order_relaxed);
}

void WorkSharing::help_others(uint32_t thread) {
  constexpr uint32_t kSpins = 2000;  // about 50 µs; then it polls rarely, and leaves the core to others
  constexpr uint32_t kSpinsPerYield = 64;
  SharingThread& self = members_[thread];
  self.enter(program::Phase::sync);
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
