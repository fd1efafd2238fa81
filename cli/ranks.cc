#include "cli/ranks.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "cli/option_parsing.h"
#include "cli/output.h"
#include "cli/parse.h"

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
    complain(fmt::format("the ranks {} within {} s: one of them hangs, or --rank-timeout is too short", what,
                         most.count()));
    std::_Exit(1);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_met_ = false;
  std::thread thread_;
};

}  // namespace

void add_rank_options(CLI::App& command, RankOptions& options) {
  constexpr uint32_t kDay = 86400;
  add_count(
      command, "--rank-timeout", options.longest_wait,
      "With mpirun: seconds after which a rank without a sign of life counts as failed; steps of ranks may "
      "not differ by more (default: 10)",
      kDay);
  command.add_flag(
      "--divide-cores,!--no-divide-cores", options.divide_cores,
      "With mpirun: divide the cores that several ranks of a computer may use among these ranks (default)");
}

uint32_t started_ranks() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(variable); size != nullptr)
      if (const auto count = parse_number<uint32_t>(size); count && *count > 1) return *count;
  return 1;
}

std::shared_ptr<Communicator> connect_ranks(const RankOptions& options) {
  const std::chrono::seconds wait(options.longest_wait);
  std::shared_ptr<Communicator> ranks;
  {
    const Deadline deadline(wait, "have not connected");
    ranks = connect_mpi(wait, options.divide_cores);
  }
  if (ranks->rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr)
    throw Error("cannot open /dev/null, to which all ranks but the first print their results");
  const auto end = [ranks, wait](Communicator*) mutable {
    const Deadline deadline(2 * wait, "have not ended");
    ranks.reset();
  };
  return {ranks.get(), end};
}

int run_as_rank(Communicator* ranks, const std::function<int()>& work) {
  if (ranks == nullptr) return work();
  try {
    return work();
  } catch (const RankError& error) {
    ranks->abort(error.what());
    throw;
  } catch (const std::exception& error) {
    ranks->abort(fmt::format("rank {}: {}", ranks->rank(), error.what()));
    throw;
  }
}

}  // namespace tessera::cli
