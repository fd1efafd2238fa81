#include "compiler/address_ranges.h"

#include <algorithm>

namespace tessera::compiler {

void AddressRanges::Chunk::measure() const {
  if (is_measured) return;
  is_measured = true;
  widest_gap = 0;
  for (size_t i = 1; i < ranges.size(); ++i)
    widest_gap = std::max(widest_gap, ranges[i].begin - ranges[i - 1].end);
}

void AddressRanges::add(AddressRange range) {
  if (chunks_.empty()) {
    chunks_.push_back({{range}, 0});
    return;
  }
  // The chunks that may contain ranges touching this one: it is added to the first of them.
  const auto ends_before = [](const Chunk& c, uint64_t begin) { return c.end() < begin; };
  size_t first = static_cast<size_t>(
      std::lower_bound(chunks_.begin(), chunks_.end(), range.begin, ends_before) - chunks_.begin());
  if (first == chunks_.size() || (first > 0 && chunks_[first].begin() > range.end)) --first;
  size_t end = first + 1;
  while (end < chunks_.size() && chunks_[end].begin() <= range.end) ++end;
  for (size_t c = first; c < end; ++c) {
    std::vector<AddressRange>& ranges = chunks_[c].ranges;
    const auto from = std::lower_bound(ranges.begin(), ranges.end(), range.begin,
                                       [](const AddressRange& r, uint64_t begin) { return r.end < begin; });
    auto to = from;
    for (; to != ranges.end() && to->begin <= range.end; ++to) {
      range.begin = std::min(range.begin, to->begin);
      range.end = std::max(range.end, to->end);
    }
    ranges.erase(from, to);
  }
  std::vector<AddressRange>& ranges = chunks_[first].ranges;
  ranges.insert(
      std::upper_bound(ranges.begin(), ranges.end(), range,
                       [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; }),
      range);
  for (size_t c = first; c < end; ++c) chunks_[c].is_measured = false;
  if (end - first > 1)
    chunks_.erase(std::remove_if(chunks_.begin() + static_cast<int64_t>(first),
                                 chunks_.begin() + static_cast<int64_t>(end),
                                 [](const Chunk& c) { return c.ranges.empty(); }),
                  chunks_.begin() + static_cast<int64_t>(end));
  if (chunks_[first].ranges.size() > kMostInChunk) split(first);
}

void AddressRanges::split(size_t chunk) {
  std::vector<AddressRange>& ranges = chunks_[chunk].ranges;
  const auto middle = ranges.begin() + static_cast<int64_t>(ranges.size() / 2);
  Chunk upper{{middle, ranges.end()}, 0, false};
  ranges.erase(middle, ranges.end());
  chunks_.insert(chunks_.begin() + static_cast<int64_t>(chunk) + 1, std::move(upper));
}

uint64_t AddressRanges::next_free(uint64_t at, uint64_t room) const {
  auto chunk = std::lower_bound(chunks_.begin(), chunks_.end(), at,
                                [](const Chunk& c, uint64_t from) { return c.end() <= from; });
  for (; chunk != chunks_.end() && at + room > chunk->begin(); ++chunk) {
    chunk->measure();
    if (chunk->widest_gap < room && at <= chunk->begin()) {
      at = chunk->end();
      continue;
    }
    auto range = std::lower_bound(chunk->ranges.begin(), chunk->ranges.end(), at,
                                  [](const AddressRange& r, uint64_t from) { return r.end <= from; });
    for (; range != chunk->ranges.end(); ++range) {
      if (at + room <= range->begin) return at;
      at = std::max(at, range->end);
    }
  }
  return at;
}

}  // namespace tessera::compiler
