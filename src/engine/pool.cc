#include "engine/pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <utility>

#include "base/pause.h"
#include "engine/openmp.h"
#include "machine/host/affinity.h"
#include "machine/host/detect.h"

namespace tessera::engine {
namespace {

constexpr uint32_t kSpinsPerClock = 64;  // pauses between two reads of the clock

/// Spins until done() or the spinning time is over; returns whether it is done.
template <class Done>
bool spin_until(const Done& done, std::chrono::microseconds most) {
  if (most.count() == 0) return done();
  std::chrono::steady_clock::time_point give_up{};
  for (uint32_t spins = 1;; ++spins) {
    if (done()) return true;
    base::pause();
    if (spins % kSpinsPerClock != 0) continue;
    std::this_thread::yield();  // the awaited thread may need this very core
    const auto now = std::chrono::steady_clock::now();
    if (give_up == std::chrono::steady_clock::time_point{}) give_up = now + most;
    if (now >= give_up) return done();
  }
}

}  // namespace

/// Each worker has its own cache line to wait on, so that a job for few threads leaves the others asleep.
struct Pool::Worker {
  alignas(64) std::atomic<uint32_t> epoch{0};
  Team::Invoke call = nullptr;
  void* job = nullptr;
  uint32_t thread = 0;
  std::atomic<int> kernel_id{0};
  int cpu = -1;  ///< to which it is pinned
  bool stop = false;
  std::exception_ptr failure;
  std::thread handle;
};

Pool& Pool::shared() {
  // A forked child has none of its parent's threads: it abandons their pool, which may be in use, for its
  // own.
  static std::atomic<Pool*> shared{nullptr};
  static const int when_forked = pthread_atfork(nullptr, nullptr, [] { shared = nullptr; });
  static const struct AtExit {
    ~AtExit() { delete shared.exchange(nullptr); }
  } at_exit;
  static_cast<void>(when_forked);
  if (Pool* pool = shared.load(std::memory_order_acquire)) return *pool;
  auto fresh = std::make_unique<Pool>();
  Pool* first = nullptr;
  return shared.compare_exchange_strong(first, fresh.get()) ? *fresh.release() : *first;
}

Pool::Pool(Share share, std::chrono::microseconds spin)
    : spin_(spin), share_(share), cpus_(find_cpus()), bindings_(machine::process_bindings()) {}

Pool::~Pool() {
  for (auto& worker : workers_) {
    worker->stop = true;
    worker->epoch.fetch_add(1, std::memory_order_release);
    worker->epoch.notify_one();
  }
  for (auto& worker : workers_) worker->handle.join();
}

std::vector<int> Pool::find_cpus() const {
  const std::vector<int> all = machine::cpus_by_core();
  std::vector<int> own;
  for (size_t i = share_.number; i < all.size(); i += share_.of) own.push_back(all[i]);
  return own;
}

void Pool::grow(uint32_t workers) {
  while (workers_.size() < workers) {
    auto worker = std::make_unique<Worker>();
    worker->thread = static_cast<uint32_t>(workers_.size()) + 1;
    Worker& w = *worker;
    worker->handle = std::thread([this, &w] {
      w.kernel_id = gettid();
      w.kernel_id.notify_one();
      work(w);
    });
    worker->kernel_id.wait(0);
    workers_.push_back(std::move(worker));
  }
}

void Pool::bind(uint32_t workers) {
  if (const uint32_t now = machine::process_bindings(); std::exchange(bindings_, now) != now) {
    cpus_ = find_cpus();
    for (const auto& worker : workers_) worker->cpu = -1;
  }
  if (workers + 1 > cpus_.size()) return;
  const int callers = sched_getcpu();
  auto cpu = cpus_.begin();
  for (uint32_t w = 0; w < workers; ++w, ++cpu) {
    if (*cpu == callers) ++cpu;
    if (cpu == cpus_.end()) return;
    Worker& worker = *workers_[w];
    if (std::exchange(worker.cpu, *cpu) != *cpu) machine::bind_thread(worker.kernel_id, {&*cpu, 1});
  }
}

void Pool::work(Worker& worker) {
  for (uint32_t seen = 0;; ++seen) {
    const auto is_called = [&] { return worker.epoch.load(std::memory_order_acquire) != seen; };
    if (!spin_until(is_called, spin_)) worker.epoch.wait(seen, std::memory_order_acquire);
    while (!is_called()) worker.epoch.wait(seen, std::memory_order_acquire);
    if (worker.stop) return;
    try {
      worker.call(worker.job, worker.thread);
    } catch (...) {
      worker.failure = std::current_exception();
    }
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

Pool::Team::Team(Pool& pool, uint32_t threads) : pool_(pool), turn_(pool.turn_), threads_(threads) {}

Pool::Team::~Team() = default;

void Pool::Team::run(Invoke call, void* job) {
  if (threads_ == 1) return call(job, 0);
  if (!run_on_openmp(threads_, call, job)) run_on_workers(call, job);
}

void Pool::Team::run_on_workers(Invoke call, void* job) {
  const uint32_t workers = threads_ - 1;
  pool_.grow(workers);
  pool_.bind(workers);
  pool_.pending_.store(workers, std::memory_order_relaxed);
  for (uint32_t w = 0; w < workers; ++w) {
    Worker& worker = *pool_.workers_[w];
    worker.call = call;
    worker.job = job;
    worker.epoch.fetch_add(1, std::memory_order_release);
    worker.epoch.notify_one();
  }
  std::exception_ptr failure;
  try {
    call(job, 0);
  } catch (...) {
    failure = std::current_exception();
  }
  const auto all_done = [&] { return pool_.pending_.load(std::memory_order_acquire) == 0; };
  if (!spin_until(all_done, pool_.spin_))
    for (uint32_t left; (left = pool_.pending_.load(std::memory_order_acquire)) != 0;)
      pool_.pending_.wait(left, std::memory_order_acquire);
  for (uint32_t w = 0; w < workers; ++w) {
    std::exception_ptr other = std::exchange(pool_.workers_[w]->failure, nullptr);
    if (failure == nullptr) failure = other;
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

base::ParallelFor on_pool(uint32_t threads) {
  return [threads](uint32_t count, const std::function<void(uint32_t)>& job) {
    if (threads <= 1 || count <= 1) return base::serial_for(count, job);
    Pool::Team team(Pool::shared(), std::min(threads, count));
    std::atomic<uint32_t> next = 0;
    team.run([&](uint32_t) {
      for (uint32_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) job(i);
    });
  };
}

}  // namespace tessera::engine
