#include "cli/ranks.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "cli/output.h"

namespace tessera::cli {
namespace {

/// Ends the process if it lives too long: MPI waits without any limit for ranks that connect or end.
class Deadline {
 public:
  Deadline(std::chrono::seconds most, std::string why)
      : thread_([this, most, what = std::move(why)] { wait(most, what); }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      is_met_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  void wait(std::chrono::seconds most, const std::string& what) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, most, [&] { return is_met_; })) return;
    complain(
        fmt::format("the ranks {} for {} s: one of them hangs, or see --rank-timeout", what, most.count()));
    std::_Exit(1);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_met_ = false;
  std::thread thread_;
};

}  // namespace

bool has_other_ranks() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(variable); size != nullptr && std::string_view(size) != "1")
      return true;
  return false;
}

std::shared_ptr<Communicator> connect_ranks(uint32_t longest_wait, bool divides_cores) {
  const std::chrono::seconds wait(longest_wait);
  std::shared_ptr<Communicator> ranks;
  {
    const Deadline deadline(wait, "have not connected");
    ranks = connect_mpi(wait, divides_cores);
  }
  if (ranks->rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr)
    throw Error("/dev/null cannot be opened, to which ranks but the first print their results");
  const auto end = [ranks, wait](Communicator*) mutable {
    const Deadline deadline(2 * wait, "have not ended");
    ranks.reset();
  };
  return {ranks.get(), end};
}

}  // namespace tessera::cli
