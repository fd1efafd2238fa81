// Columns of 16 samples, one column per feature, for passes that combine features far apart.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels {

/// Number of samples of a column.
inline constexpr uint32_t kColumnLanes = 16;

/// After each run of columns a cache line is left out, so that columns a power of two apart lie in different
/// sets of the L1 cache.
inline constexpr uint32_t kColumnRun = 64;

/// Offset of a feature's column, in floats.
constexpr size_t column_of(size_t feature) { return (feature + feature / kColumnRun) * kColumnLanes; }

/// Floats of the columns of `features` features, in whole vectors.
constexpr size_t floats_of_columns(size_t features) { return column_of(features) + kColumnLanes; }

}  // namespace tessera::kernels
