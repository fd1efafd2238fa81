// Events of one recording in a `.npy` file.
#pragma once

#include <cstdint>
#include <vector>

#include "data/events/binning.h"
#include "io/source.h"

namespace tessera::train {

inline constexpr uint64_t kMostValues = uint64_t{1} << 28;  ///< values of an array in a file

/// Reads records with fields t (µs) and x, and optionally y and p, in any order, or integers [events, 4]: x,
/// y, t, p. p is 0 or 1, or -1 and 1. Throws Error for anything else, negative times, and pixels from 65,536
/// on.
std::vector<PixelEvent> read_event_array(const io::Source& source);

}  // namespace tessera::train
