// Layout of the scratch of fastfood layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/lane_columns.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Maximum number of samples, left over from a batch's tiles, that take less time one by one.
inline constexpr uint32_t kFewFastfoodSamples = 11;

/// Whether single samples are processed on vectors along their features.
inline bool fastfood_has_lines(uint32_t size) { return size >= kColumnLanes; }

/// Offsets in floats. All but the totals are columns.
struct FastfoodScratch {
  size_t x = 0;
  size_t first;   ///< results of the first transform
  size_t second;  ///< results of the second transform, and products whose lanes are added
  size_t dy;
  size_t dx;
  size_t totals;
  size_t total;

  FastfoodScratch(uint32_t size, bool gradients) {
    const size_t columns = floats_of_columns(size), more = gradients ? columns : 0;
    first = columns;
    second = first + columns;
    dy = second + columns;
    dx = dy + more;
    totals = dx + more;
    total = totals + (gradients ? std::max<size_t>(size, kColumnLanes) : 0);
  }
};

}  // namespace tessera::kernels
