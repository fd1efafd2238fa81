// The shuffles by which PopSparse's benchmark draws its patterns.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::sparse {

/// Most numbers that can be shuffled.
inline constexpr uint64_t kMostShuffled = 2'147'483'645;

/// The first `count` of `all` numbers from 0 on, in the order in which libstdc++'s std::shuffle leaves them
/// with its std::default_random_engine of that seed (minstd_rand0, Park & Miller 1988), on any platform.
std::vector<uint32_t> first_of_shuffled(uint64_t all, uint64_t count, uint64_t seed);

}  // namespace tessera::sparse
