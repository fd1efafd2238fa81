#include "program/chip_traffic.h"

#include <map>

#include "program/cycles.h"

namespace tessera::program {
namespace {

constexpr uint32_t kNobody = ~0U;

}  // namespace

ChipTraffic::ChipTraffic(const machine::Machine& machine)
    : machine_(machine),
      links_(machine),
      of_(machine.chips),
      bytes_(links_.all().size()),
      user_of_(links_.all().size()),
      over_(links_.all().size()) {
  clear();
}

void ChipTraffic::clear() {
  for (uint32_t chip = 0; chip < of_.size(); ++chip) {
    of_[chip] = {};
    of_[chip].joins = chip;
  }
  std::fill(bytes_.begin(), bytes_.end(), 0.0);
  std::fill(user_of_.begin(), user_of_.end(), kNobody);
}

uint32_t ChipTraffic::root_of(uint32_t chip) const {
  while (of_[chip].joins != chip) chip = of_[chip].joins;
  return chip;
}

void ChipTraffic::tie(uint32_t a, uint32_t b) {
  a = root_of(a);
  b = root_of(b);
  of_[std::max(a, b)].joins = std::min(a, b);
}

void ChipTraffic::send(uint32_t from, uint32_t to, uint64_t first, uint64_t last) {
  sender_ = from;
  of_[from].takes_part = of_[from].exchanges = true;
  if (from == to || first == last) return;
  std::vector<Rows>& wants = of_[to].wants;
  if (wants.empty()) receivers_.push_back(to);
  if (!wants.empty() && first <= wants.back().last)
    wants.back().last = std::max(wants.back().last, last);
  else
    wants.push_back({first, last});
}

void ChipTraffic::carry(uint32_t from, uint32_t to) {
  const std::vector<uint32_t> route = links_.route(from, to);
  of_[from].hops = std::max(of_[from].hops, static_cast<uint32_t>(route.size()));
  of_[to].takes_part = of_[to].exchanges = true;
  tie(from, to);
  for (const uint32_t link : route) {
    if (user_of_[link] != kNobody) tie(user_of_[link], from);
    user_of_[link] = from;
    std::vector<Rows>& over = over_[link];
    if (over.empty()) links_in_use_.push_back(link);
    over.insert(over.end(), of_[to].wants.begin(), of_[to].wants.end());
  }
  of_[to].wants.clear();
}

void ChipTraffic::close(double row_bytes) {
  for (const uint32_t to : receivers_) carry(sender_, to);
  receivers_.clear();
  for (const uint32_t link : links_in_use_) {
    std::vector<Rows>& over = over_[link];
    std::ranges::sort(over, {}, &Rows::first);
    uint64_t rows = 0, reached = 0;
    for (const Rows& part : over) {
      const uint64_t first = std::max(part.first, reached);
      if (part.last > first) rows += part.last - first;
      reached = std::max(reached, part.last);
    }
    bytes_[link] += static_cast<double>(rows) * row_bytes;
    over.clear();
  }
  links_in_use_.clear();
}

std::vector<TiedChips> ChipTraffic::tied() const {
  std::map<uint32_t, TiedChips> groups;
  std::vector<double> busiest_link(of_.size());
  for (uint32_t link = 0; link < bytes_.size(); ++link) {
    if (user_of_[link] == kNobody) continue;
    double& busiest = busiest_link[root_of(user_of_[link])];
    busiest = std::max(busiest, machine_.link_cycles(bytes_[link]));
  }
  struct Widest {
    double tile = 0;
    uint32_t hops = 0;
    bool exchanges = false;
  };
  std::map<uint32_t, Widest> widest;
  for (uint32_t chip = 0; chip < of_.size(); ++chip) {
    if (!of_[chip].takes_part) continue;
    const uint32_t root = root_of(chip);
    groups[root].chips.push_back(chip);
    Widest& w = widest[root];
    w.tile = std::max(w.tile, of_[chip].busiest);
    w.hops = std::max(w.hops, of_[chip].hops);
    w.exchanges = w.exchanges || of_[chip].exchanges;
  }
  std::vector<TiedChips> tied;
  for (auto& [root, group] : groups) {
    const Widest& w = widest[root];
    PhaseTimes& cycles = group.cycles;
    cycles[Phase::exchange] = w.tile;
    if (group.chips.size() > 1)
      cycles[Phase::exchange] =
          std::max(w.tile, busiest_link[root]) + w.hops * machine_.link_latency_cycles();
    if (w.exchanges) {
      cycles[Phase::exchange] += exchange_overhead_cycles(machine_);
      cycles[Phase::sync] =
          group.chips.size() > 1 ? machine_.chip_sync_cycles : exchange_sync_cycles(machine_);
    }
    tied.push_back(std::move(group));
  }
  return tied;
}

std::vector<LinkLoad> ChipTraffic::loads() const {
  std::vector<LinkLoad> loads;
  for (uint32_t link = 0; link < bytes_.size(); ++link)
    if (bytes_[link] > 0) loads.push_back({links_[link].from, links_[link].to, bytes_[link]});
  return loads;
}

}  // namespace tessera::program
