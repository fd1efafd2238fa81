// Certificates from dual values.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::pack {

inline constexpr uint64_t kLongestMaximum = uint64_t{1} << 28;  ///< tokens of a pack

/// The lengths that occur, ascending.
std::vector<uint32_t> lengths_of(const Histogram& histogram);

/// The best bound that duals, one per occurring length, prove when scaled by a constant and rounded down.
/// Uses the smallest of a few constants that gives it, so that the numbers are easy to check.
Certificate integer_certificate(const Histogram& histogram, uint32_t max_per_pack,
                                std::span<const double> duals);

}  // namespace tessera::pack
