// Common parts of the planners of products on tiled machines.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "machine/model/machine.h"
#include "ops/product_problem.h"
#include "program/codelet.h"

namespace tessera::ops {

/// Number of candidates for which exact costs are computed, or more until one fits.
inline constexpr size_t kRecounted = 4;
inline constexpr size_t kMostRecounted = 16;

/// A partition, and its expected cost.
template <class Partition>
struct Expected {
  Partition partition;
  program::PhaseTimes cycles;
  double bytes = 0;  ///< bytes of the fullest tile
};

/// Adds an exchange whose busiest tile takes `traffic` cycles, with its sync.
void add_exchange(const machine::Machine& machine, double traffic, program::PhaseTimes& cycles);

/// The numbers of parts, up to `most`, that give different sizes of the largest part.
std::vector<uint32_t> part_counts(uint32_t units, uint32_t most);

/// Sorts candidates, fastest first, after moving candidates that are not expected to fit to the end, and
/// keeps only the first ones.
template <class Partition>
void keep_best(std::vector<Expected<Partition>>& partitions, const machine::Machine& machine) {
  constexpr size_t kMost = 64;
  const auto capacity = static_cast<double>(machine.tile_bytes);
  std::sort(partitions.begin(), partitions.end(), [&](const auto& a, const auto& b) {
    if ((a.bytes > capacity) != (b.bytes > capacity)) return a.bytes <= capacity;
    return a.bytes > capacity ? a.bytes < b.bytes : a.cycles.total() < b.cycles.total();
  });
  if (partitions.size() > kMost) partitions.resize(kMost);
}

/// Expected cycles for adding `partials` arrays of `elements` elements on a tile.
double reduce_cycles(const machine::Machine& m, TiledNumbers numbers, double partials, double elements);

}  // namespace tessera::ops
