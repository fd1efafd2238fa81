#include "packing/slots.h"

#include <algorithm>
#include <set>

namespace tessera::pack {
namespace {

/// One slot in each of several consecutive packs of a strategy.
struct SlotRange {
  uint32_t strategy;
  uint64_t begin;
  uint64_t end;
};

/// Sequences of one length in each of the packs of a range.
struct FilledRange {
  uint64_t begin;
  uint64_t end;
  uint32_t length;
};

using FilledRanges = std::vector<std::vector<FilledRange>>;  // by strategy

FilledRanges fill_ranges(const std::vector<Strategy>& slots, Histogram& left) {
  std::vector<std::vector<SlotRange>> by_length(left.counts.size());
  for (uint32_t s = 0; s < slots.size(); ++s)
    for (const Part& part : slots[s].parts)
      for (uint32_t copy = 0; copy < part.copies && slots[s].count > 0; ++copy)
        by_length[part.length].push_back({s, 0, slots[s].count});
  FilledRanges filled(slots.size());
  std::vector<SlotRange> open;  // shortest last
  for (size_t length = left.counts.size(); length-- > 1;) {
    open.insert(open.end(), by_length[length].begin(), by_length[length].end());
    uint64_t& sequences = left.counts[length];
    while (sequences > 0 && !open.empty()) {
      SlotRange& range = open.back();
      const uint64_t count = std::min(sequences, range.end - range.begin);
      filled[range.strategy].push_back({range.begin, range.begin + count, static_cast<uint32_t>(length)});
      sequences -= count;
      range.begin += count;
      if (range.begin == range.end) open.pop_back();
    }
  }
  return filled;
}

/// The contents of the packs between two neighbouring range ends. Ranges are in descending order of length.
Strategy packs_between(const std::vector<FilledRange>& ranges, uint64_t begin, uint64_t end) {
  Strategy result{.parts = {}, .count = end - begin};
  for (const FilledRange& range : ranges) {
    if (range.begin > begin || range.end < end) continue;
    if (!result.parts.empty() && result.parts.back().length == range.length)
      ++result.parts.back().copies;
    else
      result.parts.push_back({range.length, 1});
  }
  return result;
}

}  // namespace

std::vector<Strategy> fill_slots(const std::vector<Strategy>& slots, Histogram& left) {
  std::vector<Strategy> packs;
  for (const std::vector<FilledRange>& ranges : fill_ranges(slots, left)) {
    std::set<uint64_t> ends;
    for (const FilledRange& range : ranges) ends.insert({range.begin, range.end});
    for (auto begin = ends.begin(); begin != ends.end() && std::next(begin) != ends.end(); ++begin) {
      Strategy strategy = packs_between(ranges, *begin, *std::next(begin));
      if (!strategy.parts.empty()) packs.push_back(std::move(strategy));
    }
  }
  return packs;
}

std::vector<Strategy> merged(std::vector<Strategy> strategies) {
  const auto content = [](const Strategy& strategy) {
    std::vector<std::pair<uint32_t, uint32_t>> key;
    for (const Part& part : strategy.parts) key.emplace_back(part.length, part.copies);
    return key;
  };
  std::sort(strategies.begin(), strategies.end(),
            [&](const Strategy& a, const Strategy& b) { return content(a) > content(b); });
  std::vector<Strategy> result;
  for (Strategy& strategy : strategies) {
    if (!result.empty() && result.back().parts == strategy.parts)
      result.back().count += strategy.count;
    else
      result.push_back(std::move(strategy));
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Strategy& a, const Strategy& b) { return a.count > b.count; });
  return result;
}

}  // namespace tessera::pack
