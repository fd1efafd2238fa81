// From counts of strategies to packs of sequences.
#pragma once

#include <tessera/packing.h>

#include <vector>

namespace tessera::pack {

/// Puts sequences of `left` into the slots of packs: longest first, each into a slot of its length
/// or, where there is none, the shortest longer one. Takes them out of `left`. A pack of which some
/// slots stay empty holds the others; one of which all do is left out.
std::vector<Strategy> fill_slots(const std::vector<Strategy>& slots, Histogram& left);

/// The same packs, each strategy once, the most frequent first.
std::vector<Strategy> merged(std::vector<Strategy> strategies);

}  // namespace tessera::pack
