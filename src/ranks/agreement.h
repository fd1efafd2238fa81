// What ranks decide together.
#pragma once

#include <fmt/format.h>
#include <tessera/communicator.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranks/gather.h"

namespace tessera::ranks {

/// While it exists, tells the other ranks that this one is at work, which counts as an answer to them, and
/// receives the same from them. The work must not use the communicator.
class Heartbeat {
 public:
  explicit Heartbeat(Communicator& communicator);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  ~Heartbeat();

  /// Waits until the work of all ranks is done. Throws RankError if one of them does not answer.
  void wait_for_all();

 private:
  void run();

  Communicator& communicator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

/// Runs work that each rank does for itself, however long it takes. If it fails on one rank, it fails on all,
/// and the ranks can continue. The work must not use the communicator. Without ranks, one process runs it.
template <class Work>
void do_on_each(Communicator* communicator, const Work& work) {
  if (communicator == nullptr || communicator->size() == 1) return work();
  std::exception_ptr own;
  std::string error;  // empty: none
  Heartbeat heartbeat(*communicator);
  try {
    work();
  } catch (const std::exception& thrown) {
    own = std::current_exception();
    error = fmt::format("rank {}: {}", communicator->rank(), thrown.what());
  }
  std::vector<std::string> errors;
  try {
    heartbeat.wait_for_all();
    errors = all_gather(*communicator, error);
  } catch (const RankError&) {
    if (own) std::rethrow_exception(own);
    throw;
  }
  if (own) std::rethrow_exception(own);
  for (const std::string& of_other : errors)
    if (!of_other.empty()) throw RankError(of_other);
}

/// Runs work that the first rank does for all, such as writing a file. Without ranks, one process runs it.
template <class Work>
void do_once(Communicator* communicator, const Work& work) {
  do_on_each(communicator, [&] {
    if (communicator == nullptr || communicator->rank() == 0) work();
  });
}

/// Whether `own` is true on any rank.
inline bool is_any(Communicator* communicator, bool own) {
  if (communicator == nullptr) return own;
  for (const std::string& each : all_gather(*communicator, std::string(own ? 1 : 0, 'x')))
    if (!each.empty()) return true;
  return false;
}

/// The sum of `own` over all ranks.
uint64_t sum_of(Communicator* communicator, uint64_t own);

/// Facts that must be equal on all ranks: names, for messages, and values of one line.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Throws RankError on all ranks, naming the first fact that differs, unless all have the same.
void require_equal(Communicator& communicator, const Facts& facts);

}  // namespace tessera::ranks
