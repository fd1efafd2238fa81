#include "compiler/addresses_in_use.h"

#include <algorithm>
#include <set>

namespace tessera::compiler {
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
  taken_.clear();
  ranges_ = 0;
}

void AddressesInUse::occupy(AddressRange range, uint32_t lifetime) {
  use(lifetime).own.push_back(range);
  if (++ranges_ > kMostLookedThrough) return;
  const auto after =
      std::ranges::upper_bound(taken_, range.begin, {}, [](const Taken& taken) { return taken.range.begin; });
  taken_.insert(after, {range, lifetime});
}

uint64_t AddressesInUse::lowest_free(uint64_t at, uint64_t room, uint64_t alignment, uint32_t lifetime) {
  OfLifetime& of = use(lifetime);
  if (of.meets.empty()) find_met(of, lifetime);
  return ranges_ <= kMostLookedThrough ? look_through(of, at, room, alignment)
                                       : look_through_joined(of, at, room, alignment);
}

uint64_t AddressesInUse::look_through(const OfLifetime& of, uint64_t at, uint64_t room,
                                      uint64_t alignment) const {
  at = aligned(at, alignment);
  for (const Taken& taken : taken_) {
    if (taken.range.begin >= at + room) break;
    if (taken.range.end > at && of.is_met[taken.lifetime]) at = aligned(taken.range.end, alignment);
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
