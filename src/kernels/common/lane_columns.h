// Columns of 16 samples, one column per feature, for passes that combine features far apart.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels {

/// Samples of a column.
inline constexpr uint32_t kColumnLanes = 16;

/// Between columns a line is left out after each run, so that those a power of two apart lie in different
/// sets of the L1 cache.
inline constexpr uint32_t kColumnRun = 64;

/// Where a feature's column begins, in floats.
constexpr size_t column_of(size_t feature) { return (feature + feature / kColumnRun) * kColumnLanes; }

/// Floats of the columns of `features` features, in whole vectors.
constexpr size_t floats_of_columns(size_t features) { return column_of(features) + kColumnLanes; }

}  // namespace tessera::kernels
