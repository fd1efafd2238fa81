// Ranks of a command: processes that mpirun has started.
#pragma once

#include <tessera/communicator.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace CLI {
class App;
}

namespace tessera::cli {

struct RankOptions {
  uint32_t longest_wait = 10;  ///< seconds for which ranks wait for each other
  bool divide_cores = true;    ///< among ranks of one computer
};

void add_rank_options(CLI::App& command, RankOptions& options);

/// How many processes mpirun has started, with this one; 1: it is alone.
uint32_t started_ranks();

/// The ranks that mpirun has started; only the first one prints results. See connect_mpi().
std::shared_ptr<Communicator> connect_ranks(const RankOptions& options);

/// Calls `work`, which returns an exit status. A rank that fails tells the other ranks. Otherwise they would
/// wait for it, and when they give up, it would be ended before it says why it failed. null: there are no
/// other ranks.
int run_as_rank(Communicator* ranks, const std::function<int()>& work);

}  // namespace tessera::cli
