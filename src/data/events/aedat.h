// DVS128 Gesture (Amir et al. 2017): recordings in AEDAT 3.1, each of several gestures, whose times are
// listed in a file beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "data/events/binning.h"
#include "io/source.h"

namespace tessera::train {

inline constexpr uint32_t kDvsSide = 128;
inline constexpr uint32_t kGestures = 11;

/// The polarity events of an AEDAT 3.1 file that are marked as valid; packets of other kinds are skipped.
/// Throws Error for malformed files and pixels beyond 128 × 128.
std::vector<PixelEvent> read_aedat(const io::Source& source);

struct Gesture {
  uint32_t label = 0;  ///< from 0
  int64_t begin = 0;   ///< µs
  int64_t end = 0;

  bool operator==(const Gesture&) const = default;
};

/// Reads a list of gestures: class from 1, begin, end; the first line names the columns. Throws Error if it
/// is malformed.
std::vector<Gesture> read_gestures(const io::Source& source);

}  // namespace tessera::train
