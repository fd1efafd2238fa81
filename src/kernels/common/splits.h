// Splits the slices of sparse kernels into vectors, groups of vectors, and parts for threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::kernels {

/// Lanes of the widest vector that the kernels are built for.
inline constexpr uint32_t kMaxLanes = 16;

constexpr uint32_t round_up(uint32_t value, uint32_t step) { return (value + step - 1) / step * step; }

/// Divides the units of a slice, from `first` to `end`, into parts that threads take one at a time: large
/// enough to make taking them negligible, small enough for threads to finish together. A unit is a few rows.
struct PartSplit {
  uint32_t first;
  uint32_t end;
  uint32_t step;

  PartSplit(uint32_t first_unit, uint32_t end_unit, uint32_t unit_rows) : first(first_unit), end(end_unit) {
    constexpr uint32_t kRows = 32, kMost = 64;
    const uint32_t rows = (end - first) * unit_rows;
    step = std::max(round_up(std::max(kRows, rows / kMost), kRows) / unit_rows, 1U);
  }

  uint32_t parts() const { return (end - first + step - 1) / step; }
  uint32_t begin_of(uint32_t i) const { return first + i * step; }
  uint32_t end_of(uint32_t i) const { return std::min(begin_of(i) + step, end); }
};

/// Splits `vectors` into tiles of at most `most` vectors whose widths differ by at most one: tile i of
/// `tiles()` begins at `begin(i)`.
struct TileSplit {
  uint32_t vectors;
  uint32_t most;

  uint32_t tiles() const { return (vectors + most - 1) / most; }
  uint32_t begin(uint32_t i) const { return i * vectors / tiles(); }
};

}  // namespace tessera::kernels
