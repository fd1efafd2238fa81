#include "packing/open_packs.h"

namespace tessera::pack {

PackGroup OpenPacks::take(uint32_t room) {
  std::vector<PackGroup>& groups = groups_[room];
  const PackGroup group = groups.back();
  groups.pop_back();
  if (groups.empty()) rooms_.erase(room);
  return group;
}

void OpenPacks::put_back(const PackGroup& group) {
  groups_[group.room].push_back(group);
  rooms_.insert(group.room);
}

void OpenPacks::fill(const PackGroup& group, uint64_t count, uint32_t length, uint32_t copies) {
  keep(contents_.add(group, count, length, copies));
}

void OpenPacks::open(const Strategy& strategy) {
  PackGroup group = fresh_;
  for (const Part& part : strategy.parts)
    group = contents_.add(group, strategy.count, part.length, part.copies);
  keep(group);
}

void OpenPacks::keep(const PackGroup& group) {
  if (group.room == 0 || group.depth == depth_limit_)
    closed_.push_back(group);
  else
    put_back(group);
}

std::vector<Strategy> OpenPacks::strategies() const {
  std::vector<Strategy> result;
  for (const PackGroup& group : closed_) result.push_back(contents_.strategy(group));
  for (const std::vector<PackGroup>& groups : groups_)
    for (const PackGroup& group : groups) result.push_back(contents_.strategy(group));
  return result;
}

}  // namespace tessera::pack
