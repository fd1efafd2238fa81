// First-fit decreasing and next-fit decreasing: choose packs by age.
#include <algorithm>
#include <optional>

#include "packing/contents.h"
#include "packing/greedy.h"
#include "packing/wide.h"

namespace tessera::pack {
namespace {

/// Groups of packs in opening order, in stretches that know their maximum room: finding the first with enough
/// room takes about the square root of their number.
class AgedPacks {
 public:
  AgedPacks(uint32_t max_length, uint32_t depth_limit) : max_length_(max_length), depth_limit_(depth_limit) {}

  /// Opens as many packs as these sequences need.
  void open_for(uint32_t length, uint64_t sequences) {
    const uint64_t count = ceil_divide(sequences, std::min(max_length_ / length, depth_limit_));
    if (stretches_.empty() || stretches_.back().groups.size() >= kLongestStretch) stretches_.emplace_back();
    stretches_.back().groups.push_back({count, Contents::kEmpty, max_length_, 0});
    stretches_.back().most_room = max_length_;
  }

  /// Puts as many of the sequences as fit into the first group with room for one. Returns the number left, or
  /// nothing if no group has room.
  std::optional<uint64_t> fill_first(uint32_t length, uint64_t sequences) {
    const auto has_room = [length](const auto& x) { return x.most_room >= length; };
    const auto stretch = std::find_if(stretches_.begin(), stretches_.end(), has_room);
    if (stretch == stretches_.end()) return std::nullopt;
    std::vector<PackGroup>& groups = stretch->groups;
    const auto at =
        std::find_if(groups.begin(), groups.end(), [length](const PackGroup& g) { return g.room >= length; });
    const size_t index = static_cast<size_t>(at - groups.begin());

    PackGroup rest = *at;
    const uint32_t copies = std::min(rest.room / length, depth_limit_ - rest.depth);
    std::vector<PackGroup> parts;
    const uint64_t full = std::min(rest.count, sequences / copies);
    if (full > 0) parts.push_back(filled(rest, full, length, copies));
    sequences -= full * copies;
    rest.count -= full;
    if (rest.count > 0 && sequences > 0) {
      parts.push_back(filled(rest, 1, length, static_cast<uint32_t>(sequences)));
      sequences = 0;
      --rest.count;
    }
    if (rest.count > 0) parts.push_back(rest);
    replace(static_cast<size_t>(stretch - stretches_.begin()), index, parts);
    return sequences;
  }

  std::vector<Strategy> strategies() const {
    std::vector<Strategy> result;
    for (const Stretch& stretch : stretches_)
      for (const PackGroup& group : stretch.groups) result.push_back(contents_.strategy(group));
    return result;
  }

 private:
  static constexpr size_t kLongestStretch = 256;
  struct Stretch {
    std::vector<PackGroup> groups;
    uint32_t most_room = 0;

    void update() {
      most_room = 0;
      for (const PackGroup& group : groups) most_room = std::max(most_room, group.room);
    }
  };

  PackGroup filled(const PackGroup& group, uint64_t count, uint32_t length, uint32_t copies) {
    PackGroup result = contents_.add(group, count, length, copies);
    if (result.depth == depth_limit_) result.room = 0;  // none that matters
    return result;
  }

  void replace(size_t stretch_index, size_t index, const std::vector<PackGroup>& parts) {
    std::vector<PackGroup>& groups = stretches_[stretch_index].groups;
    groups[index] = parts[0];
    groups.insert(groups.begin() + static_cast<ptrdiff_t>(index) + 1, parts.begin() + 1, parts.end());
    if (groups.size() > 2 * kLongestStretch) {
      const auto middle = groups.begin() + kLongestStretch;
      Stretch second{.groups = {middle, groups.end()}};
      second.update();
      groups.erase(middle, groups.end());
      stretches_.insert(stretches_.begin() + static_cast<ptrdiff_t>(stretch_index) + 1, std::move(second));
    }
    stretches_[stretch_index].update();
  }

  uint32_t max_length_;
  uint32_t depth_limit_;
  Contents contents_;
  std::vector<Stretch> stretches_;
};

}  // namespace

std::vector<Strategy> first_fit_decreasing(const Histogram& histogram, uint32_t max_per_pack) {
  AgedPacks packs(histogram.max_length(), depth_limit(max_per_pack));
  for (uint32_t length = histogram.max_length(); length > 0; --length) {
    uint64_t left = histogram.counts[length];
    while (left > 0) {
      const std::optional<uint64_t> rest = packs.fill_first(length, left);
      if (rest)
        left = *rest;
      else
        packs.open_for(length, left);
    }
  }
  return packs.strategies();
}

std::vector<Strategy> next_fit_decreasing(const Histogram& histogram, uint32_t max_per_pack) {
  const uint32_t limit = depth_limit(max_per_pack);
  const PackGroup fresh{.count = 1, .room = histogram.max_length()};
  Contents contents;
  PackGroup open{.room = 0};
  std::vector<Strategy> result;
  const auto close = [&] {
    if (open.depth > 0) result.push_back(contents.strategy(open));
  };
  for (uint32_t length = histogram.max_length(); length > 0; --length) {
    uint64_t left = histogram.counts[length];
    const auto fit = [&](const PackGroup& pack) {
      const uint32_t most = std::min(pack.room / length, limit - pack.depth);
      return static_cast<uint32_t>(std::min<uint64_t>(most, left));
    };
    if (const uint32_t copies = open.depth > 0 ? fit(open) : 0; copies > 0) {
      open = contents.add(open, 1, length, copies);
      left -= copies;
    }
    if (left == 0) continue;
    close();
    const uint32_t copies = fit(fresh);
    const uint64_t last = left % copies == 0 ? copies : left % copies;
    const uint64_t before = (left - last) / copies;
    if (before > 0) result.push_back(contents.strategy(contents.add(fresh, before, length, copies)));
    open = contents.add(fresh, 1, length, static_cast<uint32_t>(last));
  }
  close();
  return result;
}

}  // namespace tessera::pack
