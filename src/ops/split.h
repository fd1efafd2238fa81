// Splitting ranges into parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera::ops {

/// Splits `total` units into at most `parts` ranges of nearly equal numbers of whole grains. Returns the
/// first unit of each range, and the end.
inline std::vector<uint32_t> split_evenly(uint32_t total, uint32_t parts, uint32_t grain = 1) {
  const uint64_t grains = (uint64_t{total} + grain - 1) / grain;
  const uint64_t count = std::clamp<uint64_t>(grains, 1, std::max(1U, parts));
  std::vector<uint32_t> begin;
  for (uint64_t p = 0; p <= count; ++p)
    begin.push_back(static_cast<uint32_t>(std::min<uint64_t>(total, grains * p / count * grain)));
  return begin;
}

/// Splits `units` (rows, block rows, chunks) into at most `parts` ranges of nearly equal work, where
/// before[i] is the work before unit i and before[units] all work. Returns the first unit of each range, and
/// the end.
template <class Work>
std::vector<uint32_t> split_rows(const Work& before, uint32_t units, uint32_t parts) {
  std::vector<uint32_t> begin = {0};
  for (uint32_t p = 1; p < parts; ++p) {
    const auto target = static_cast<double>(before[units]) * p / parts;
    auto at = std::partition_point(before.begin(), before.begin() + units,
                                   [&](auto work) { return static_cast<double>(work) < target; });
    // The nearer border: with few units, one more or less matters.
    if (at != before.begin() && 2 * target < static_cast<double>(at[-1]) + static_cast<double>(*at)) --at;
    begin.push_back(std::max(begin.back(), static_cast<uint32_t>(at - before.begin())));
  }
  begin.push_back(units);
  begin.erase(std::unique(begin.begin(), begin.end()), begin.end());
  if (begin.size() == 1) begin.push_back(units);
  return begin;
}

}  // namespace tessera::ops
