#include "compiler/addresses_in_use.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>

namespace tessera::compiler {
namespace {

/// Bits from the first to the last, both included.
uint64_t bits_between(uint32_t first, uint32_t last) {
  return ~uint64_t{0} << first & ~uint64_t{0} >> (63 - last);
}

}  // namespace

AddressesInUse::AddressesInUse(const std::vector<Lifetime>& lifetimes, uint32_t moments)
    : lifetimes_(lifetimes), beginning_(moments), going_on_(moments), of_(lifetimes.size()) {
  std::vector<std::vector<uint32_t>> ending(moments);
  for (uint32_t id = 0; id < lifetimes.size(); ++id)
    for (const Interval& interval : lifetimes[id]) {
      beginning_[interval.first].push_back(id);
      ending[interval.last].push_back(id);
    }
  std::set<uint32_t> alive;
  for (uint32_t moment = 0; moment < moments; ++moment) {
    if (!beginning_[moment].empty()) going_on_[moment].assign(alive.begin(), alive.end());
    alive.insert(beginning_[moment].begin(), beginning_[moment].end());
    for (const uint32_t id : ending[moment]) alive.erase(id);
  }
  make_windows(moments);
}

void AddressesInUse::make_windows(uint32_t moments) {
  windows_.resize(size_t{2} * kSlices);
  for (uint32_t w = kWhole; w < windows_.size(); ++w) {
    const uint32_t on_level = std::bit_floor(w), size = kSlices / on_level;
    const uint32_t first = (w - on_level) * size;
    windows_[w].slices = bits_between(first, first + size - 1);
  }
  const auto slice_of = [&](uint32_t moment) {
    return static_cast<uint32_t>(uint64_t{moment} * kSlices / moments);
  };
  for (size_t id = 0; id < lifetimes_.size(); ++id) {
    if (lifetimes_[id].empty()) continue;
    for (const Interval& interval : lifetimes_[id])
      of_[id].slices |= bits_between(slice_of(interval.first), slice_of(interval.last));
    uint32_t first = kSlices + slice_of(lifetimes_[id].front().first);
    for (uint32_t last = kSlices + slice_of(lifetimes_[id].back().last); first != last; last /= 2) first /= 2;
    of_[id].window = first;
  }
  clear();
}

void AddressesInUse::clear() {
  for (const uint32_t id : used_) {
    OfLifetime& of = of_[id];
    of.own.clear();
    if (!of.taken.empty()) {
      of.taken.clear();
      for (Met& met : of.meets) met.joined = 0;
    }
    of.is_used = false;
  }
  used_.clear();
  for (const uint32_t w : open_) {
    windows_[w].taken.clear();
    windows_[w].is_open = false;
  }
  windows_[kWhole].is_open = true;
  open_.assign(1, kWhole);
  ranges_ = 0;
}

void AddressesInUse::occupy(AddressRange range, uint32_t lifetime) {
  OfLifetime& of = use(lifetime);
  of.own.push_back(range);
  if (++ranges_ > kMostInOrder) return;
  for (const uint32_t w : open_) {
    Window& window = windows_[w];
    if ((window.slices & of.slices) == 0) continue;
    const auto after = std::ranges::upper_bound(window.taken, range.begin, {},
                                                [](const Taken& taken) { return taken.range.begin; });
    window.taken.insert(after, {range, lifetime});
  }
}

uint64_t AddressesInUse::lowest_free(uint64_t at, uint64_t room, uint64_t alignment, uint32_t lifetime) {
  OfLifetime& of = use(lifetime);
  if (of.meets.empty()) find_met(of, lifetime);
  if (ranges_ <= kMostInOrder)
    if (const std::vector<Taken>& taken = taken_in(of.window); taken.size() <= kMostLookedThrough)
      return look_through(taken, of, at, room, alignment);
  return look_through_joined(of, at, room, alignment);
}

const std::vector<AddressesInUse::Taken>& AddressesInUse::taken_in(uint32_t window) {
  Window& wanted = windows_[window];
  if (!wanted.is_open) {
    wanted.is_open = true;
    open_.push_back(window);
    std::ranges::copy_if(windows_[kWhole].taken, std::back_inserter(wanted.taken), [&](const Taken& taken) {
      return (of_[taken.lifetime].slices & wanted.slices) != 0;
    });
  }
  return wanted.taken;
}

uint64_t AddressesInUse::look_through(const std::vector<Taken>& taken, const OfLifetime& of, uint64_t at,
                                      uint64_t room, uint64_t alignment) {
  at = aligned(at, alignment);
  for (const auto& [range, lifetime] : taken) {
    if (range.begin >= at + room) break;
    if (range.end > at && of.is_met[lifetime]) at = aligned(range.end, alignment);
  }
  return at;
}

uint64_t AddressesInUse::look_through_joined(OfLifetime& of, uint64_t at, uint64_t room, uint64_t alignment) {
  for (Met& met : of.meets)
    for (const std::vector<AddressRange>& own = of_[met.lifetime].own; met.joined < own.size();)
      of.taken.add(own[met.joined++]);
  at = aligned(at, alignment);
  for (uint64_t next = 0; (next = aligned(of.taken.next_free(at, room), alignment)) != at;) at = next;
  return at;
}

void AddressesInUse::find_met(OfLifetime& of, uint32_t lifetime) {
  of.is_met.assign(lifetimes_.size(), false);
  const auto add = [&](const std::vector<uint32_t>& ids) {
    for (const uint32_t id : ids) {
      if (of.is_met[id]) continue;
      of.is_met[id] = true;
      of.meets.push_back({id, 0});
    }
  };
  for (const Interval& interval : lifetimes_[lifetime]) {
    add(going_on_[interval.first]);
    for (uint32_t moment = interval.first; moment <= interval.last; ++moment) add(beginning_[moment]);
  }
  std::ranges::sort(of.meets, {}, &Met::lifetime);
}

AddressesInUse::OfLifetime& AddressesInUse::use(uint32_t lifetime) {
  OfLifetime& of = of_[lifetime];
  if (!of.is_used) {
    of.is_used = true;
    used_.push_back(lifetime);
  }
  return of;
}

}  // namespace tessera::compiler
