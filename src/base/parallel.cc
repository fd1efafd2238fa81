#include "base/parallel.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::base {

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

}  // namespace tessera::base
