// What all ranks have, on each of them.
#pragma once

#include <tessera/communicator.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tessera::ranks {

// If a rank does not answer, all ranks fail with the error.

/// The bytes of all ranks, rank by rank: `all` has space for as many bytes per rank as `own` has.
void all_gather(Communicator& communicator, std::span<const std::byte> own, std::span<std::byte> all);

/// The texts of all ranks, by rank; lengths may differ.
std::vector<std::string> all_gather(Communicator& communicator, const std::string& own);

}  // namespace tessera::ranks
