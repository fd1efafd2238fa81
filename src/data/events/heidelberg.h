// The Spiking Heidelberg Digits and Spiking Speech Commands (Cramer et al. 2020): speech through a model of
// the inner ear, in HDF5.
#pragma once

#include <cstdint>

#include "data/events/binning.h"
#include "io/hdf5.h"

namespace tessera::train {

inline constexpr uint32_t kHeidelbergUnits = 700;

/// Adds the recordings of a file: `spikes/times` (lists of seconds), `spikes/units` (lists of numbers below
/// 700) and `labels`. `to` has the number of classes, and `binning` windows in seconds. Throws Error if they
/// do not fit together.
void read_heidelberg(const io::Hdf5File& file, Recordings& to, Binning& binning);

}  // namespace tessera::train
