// Braille letters under a finger of twelve pressure sensors (Müller-Cleve et al. 2022).
#pragma once

#include <cstdint>

#include "data/events/binning.h"
#include "io/source.h"

namespace tessera::train {

/// The recordings as currents from 0, untouched, to 1: the first `lengths` samples of each recording of
/// [recordings, samples, sensors] (bytes; 255: untouched), interpolated linearly to `steps` steps. Throws
/// Error if the arrays do not fit together.
Recordings read_braille(const io::Source& taxels, const io::Source& lengths, const io::Source& labels,
                        uint32_t steps);

/// Spikes of rises and falls: feature f has the unit 2f, which fires when its current has risen by `delta`
/// since the last event of either unit, and the unit 2f + 1 for falls. A unit fires at most once per step;
/// the rest of a larger change follows in the next steps.
Recordings delta_coded(const Recordings& currents, double delta);

}  // namespace tessera::train
