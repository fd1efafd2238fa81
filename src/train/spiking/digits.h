// Currents as spikes: the binary digits of their values.
#pragma once

#include <tessera/recordings.h>

#include <cstdint>

namespace tessera::train {

inline constexpr uint32_t kDigits = 8;

/// Feature f of currents has the units 8f to 8f + 7, which fire where the digits of its value in 255 parts
/// are 1, the highest first. Throws UsageError for values that are not from 0 to 1.
Recordings digits_of(const Recordings& currents);

/// The place value of a digit: the values of the digits that fire add up to the current.
float worth_of(uint32_t digit);

}  // namespace tessera::train
