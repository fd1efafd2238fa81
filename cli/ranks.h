// Ranks of a command: processes that mpirun has started.
#pragma once

#include <tessera/communicator.h>

#include <cstdint>
#include <memory>

namespace tessera::cli {

/// Whether mpirun has started this process with others.
bool has_other_ranks();

/// The ranks that mpirun has started, of which the first one alone prints results. Waits for none of them
/// longer than so many seconds. See connect_mpi().
std::shared_ptr<Communicator> connect_ranks(uint32_t longest_wait, bool divides_cores);

}  // namespace tessera::cli
