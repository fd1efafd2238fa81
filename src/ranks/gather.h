// What all ranks have, on each of them.
#pragma once

#include <tessera/communicator.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tessera::ranks {

// If a rank does not answer, all ranks end with the error.

/// The bytes of all ranks, rank by rank: `all` has room for as many of each as `own` has.
void all_gather(Communicator& communicator, std::span<const std::byte> own, std::span<std::byte> all);

/// The texts of all ranks, which may differ in length, by rank.
std::vector<std::string> all_gather(Communicator& communicator, const std::string& own);

}  // namespace tessera::ranks
