#include "studies/common/run.h"

#include <exception>
#include <thread>
#include <vector>

#include "machine/host/detect.h"

namespace tessera::studies {

void RunProgress::begin(const std::string& cell) {
  const std::lock_guard lock(mutex_);
  watcher_.progress(done_, cell, all_ > 0 ? done_weight_ / all_ : 0);
}

void RunProgress::finish(double weight, bool failed) {
  const std::lock_guard lock(mutex_);
  ++done_;
  done_weight_ += weight;
  failed_ += failed;
}

void RunProgress::tell(const std::string& message) {
  const std::lock_guard lock(mutex_);
  watcher_.complain(message);
}

size_t RunProgress::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

void run_parallel(size_t count, uint32_t threads,
                  const std::function<void(size_t, const std::atomic<bool>& stopped)>& work) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> stopped = false;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work_on = [&] {
    for (size_t i = next++; i < count && !stopped; i = next++) try {
        work(i, stopped);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        stopped = true;
      }
  };
  {
    std::vector<std::jthread> others;
    for (uint32_t t = 1; t < threads; ++t) others.emplace_back(work_on);
    work_on();
  }
  if (error) std::rethrow_exception(error);
}

uint32_t threads_for_cells(const machine::Machine& machine, uint32_t threads) {
  if (machine.kind == machine::Kind::host) return 1;
  return threads != 0 ? threads : machine::default_threads(machine::detect_host());
}

}  // namespace tessera::studies
