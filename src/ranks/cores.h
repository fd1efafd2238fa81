// The cores of a computer, divided among the ranks that run there.
#pragma once

#include <tessera/communicator.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::ranks {

/// Where a rank may run.
struct Place {
  std::string computer;
  uint32_t most_cores = 0;              ///< number of cores whose time its control group may take; 0: any
  std::vector<std::vector<int>> cores;  ///< the allowed processors of each; none: the rank keeps what it has

  bool operator==(const Place&) const = default;
};

/// The processors for a rank; none: it keeps those that it may use now. Ranks of a computer that may use the
/// same processors get whole cores of their own. If there are fewer cores than ranks, each gets one core. If
/// some ranks divide cores, all ranks get the same number, because they have to run equally many threads.
std::vector<int> own_cpus(const std::vector<Place>& places, uint32_t rank);

/// A place as text, and back.
std::string text_of(const Place& place);
Place place_of(const std::string& text);

/// Divides the cores of each computer among its ranks, if `is_asked`, and binds this process to its own. All
/// ranks have to call it.
void divide_cores(Communicator& communicator, bool is_asked);

}  // namespace tessera::ranks
