// Runs the cells of a study.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "machine/model/machine.h"

namespace tessera::studies {

/// Is told how far a run is, by one thread at a time.
class Watcher {
 public:
  virtual ~Watcher() = default;
  /// `done` cells are finished, `fraction` of the work, and `next` begins.
  virtual void progress(size_t done, const std::string& next, double fraction) = 0;
  virtual void complain(const std::string& message) = 0;
};

/// Tells a watcher how far a run is; thread-safe.
class RunProgress {
 public:
  /// `all`: the weight of all cells.
  RunProgress(Watcher& watcher, double all) : watcher_(watcher), all_(all) {}

  void begin(const std::string& cell);
  void finish(double weight, bool failed);
  void tell(const std::string& message);
  size_t failed() const;

 private:
  Watcher& watcher_;
  double all_;
  mutable std::mutex mutex_;  // guards the following
  size_t done_ = 0;
  double done_weight_ = 0;
  size_t failed_ = 0;
};

/// Calls work(i, stopped) for each i < count, in this order, on `threads` threads. `stopped` becomes true
/// when one call throws; no other begins then, and the exception is thrown again.
void run_parallel(size_t count, uint32_t threads,
                  const std::function<void(size_t, const std::atomic<bool>& stopped)>& work);

/// Threads for the cells of a machine: several for modelled ones, one for measurements. `threads`: 0 for one
/// per physical core.
uint32_t threads_for_cells(const machine::Machine& machine, uint32_t threads);

}  // namespace tessera::studies
