#include "compiler/addresses_in_use.h"

#include <algorithm>
#include <set>

namespace tessera::compiler {

AddressesInUse::AddressesInUse(const std::vector<Lifetime>& lifetimes, uint32_t moments)
    : lifetimes_(lifetimes),
      beginning_(moments),
      going_on_(moments),
      of_(lifetimes.size()),
      taken_(lifetimes.size()) {
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
    taken_[id] = 0;
    of.taken.clear();
    for (Met& met : of.meets) met.joined = 0;
    of.is_used = false;
  }
  used_.clear();
}

void AddressesInUse::take(AddressRange range, uint32_t lifetime) {
  use(lifetime).own.push_back(range);
  ++taken_[lifetime];
}

uint64_t AddressesInUse::lowest_free(uint64_t at, uint64_t room, uint64_t alignment, uint32_t lifetime) {
  OfLifetime& of = use(lifetime);
  if (of.meets.empty()) find_met(lifetime);
  for (Met& met : of.meets)
    while (met.joined < taken_[met.lifetime]) of.taken.add(of_[met.lifetime].own[met.joined++]);
  const auto aligned = [&](uint64_t address) { return (address + alignment - 1) / alignment * alignment; };
  at = aligned(at);
  for (uint64_t next = 0; (next = aligned(of.taken.next_free(at, room))) != at;) at = next;
  return at;
}

void AddressesInUse::find_met(uint32_t lifetime) {
  std::vector<uint32_t> met;
  const auto add = [&](const std::vector<uint32_t>& ids) { met.insert(met.end(), ids.begin(), ids.end()); };
  for (const Interval& interval : lifetimes_[lifetime]) {
    add(going_on_[interval.first]);
    for (uint32_t moment = interval.first; moment <= interval.last; ++moment) add(beginning_[moment]);
  }
  std::sort(met.begin(), met.end());
  met.erase(std::unique(met.begin(), met.end()), met.end());
  for (const uint32_t id : met) of_[lifetime].meets.push_back({id, 0});
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
