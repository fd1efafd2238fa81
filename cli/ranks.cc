#include "cli/ranks.h"

#include <tessera/error.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tessera::cli {

bool has_other_ranks() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(variable); size != nullptr && std::string_view(size) != "1")
      return true;
  return false;
}

std::shared_ptr<Communicator> connect_ranks(uint32_t longest_wait, bool divides_cores) {
  std::shared_ptr<Communicator> ranks = connect_mpi(std::chrono::seconds(longest_wait), divides_cores);
  if (ranks->rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr)
    throw Error("/dev/null cannot be opened, to which ranks but the first print their results");
  return ranks;
}

}  // namespace tessera::cli
