// Converts counts of strategies to packs of sequences.
#pragma once

#include <tessera/packing.h>

#include <vector>

namespace tessera::pack {

/// Puts sequences of `left` into the slots of packs: longest first, each into a slot of its length, or
/// otherwise into the next longer slot. Removes them from `left`. Empty slots are dropped, as are empty
/// packs.
std::vector<Strategy> fill_slots(const std::vector<Strategy>& slots, Histogram& left);

/// The strategies with equal ones merged, most frequent first.
std::vector<Strategy> merged(std::vector<Strategy> strategies);

}  // namespace tessera::pack
