// Limits of the vendor's planners (PopLibs, SDK 3.4).
#pragma once

#include <cstdint>

namespace tessera::ops {

/// The fraction of a tile's memory that they allow for temporaries.
inline constexpr double kVendorMemoryFraction = 0.6;

// Static products: parts of n, bands of k, and bytes of a band's part of X, per 8 values of a block's row,
// which are also the most non-zeros of a tile.
inline constexpr uint32_t kVendorMostColParts = 32;
inline constexpr uint32_t kVendorMostBands = 128;
inline constexpr uint64_t kVendorMostRun = 0xFFFF;
/// Columns and rows with fewer blocks than this fraction of the mean do not count for the partition.
inline constexpr double kVendorLeastShare = 0.1;

/// Dynamic products: headroom of buckets beyond equal slices, for values and metadata.
inline constexpr double kVendorHeadRoom = 0.3;

}  // namespace tessera::ops
