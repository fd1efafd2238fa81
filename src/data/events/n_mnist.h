// N-MNIST (Orchard et al. 2015): MNIST as a moving event camera saw it.
#pragma once

#include <cstdint>
#include <vector>

#include "data/events/binning.h"
#include "io/source.h"

namespace tessera::train {

inline constexpr uint32_t kNMnistSide = 34;

/// Reads one recording, with 5 bytes per event: x, y, then a bit of polarity and 23 bits of time (big-endian,
/// µs). y = 240 marks that another 2^13 µs have passed, from which later times count. Throws Error for a file
/// of another length and pixels beyond 34 × 34.
std::vector<PixelEvent> read_n_mnist(const io::Source& source);

}  // namespace tessera::train
