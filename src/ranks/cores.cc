#include "ranks/cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "machine/host/detect.h"
#include "ranks/gather.h"

namespace tessera::ranks {
namespace {

using Core = std::vector<int>;

/// The boot id of the kernel, which is the same in all containers of a computer, as are the numbers of
/// processors.
std::string name_of_computer() {
  std::string name;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (std::getline(file, name)) return name;
  std::array<char, 256> host{};
  return gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "unknown";
}

Place own_place() {
  const double quota = machine::detect_host().quota;
  return {name_of_computer(), quota == 0 ? 0U : std::max(1U, static_cast<uint32_t>(quota)),
          machine::cpus_of_cores()};
}

std::set<int> cpus_of(const Place& place) {
  std::set<int> cpus;
  for (const Core& core : place.cores) cpus.insert(core.begin(), core.end());
  return cpus;
}

/// A rank, and all ranks that compete for its processors, those with the fewest processors first.
std::vector<uint32_t> competitors_of(uint32_t rank, const std::vector<Place>& places) {
  std::vector<uint32_t> group = {rank};
  for (size_t i = 0; i < group.size(); ++i) {
    const Place& place = places[group[i]];
    const std::set<int> cpus = cpus_of(place);
    for (uint32_t other = 0; other < places.size(); ++other)
      if (places[other].computer == place.computer && std::ranges::count(group, other) == 0 &&
          std::ranges::any_of(cpus_of(places[other]), [&](int cpu) { return cpus.contains(cpu); }))
        group.push_back(other);
  }
  std::ranges::sort(group, {}, [&](uint32_t each) { return std::pair(places[each].cores.size(), each); });
  return group;
}

/// How many cores each rank of a group can have.
size_t cores_of_each(const std::vector<uint32_t>& group, const std::vector<Place>& places) {
  std::set<int> cores;  // by their first processors
  size_t most = SIZE_MAX;
  for (const uint32_t rank : group) {
    for (const Core& core : places[rank].cores) cores.insert(core.front());
    if (places[rank].most_cores != 0) most = std::min<size_t>(most, places[rank].most_cores);
  }
  return std::max<size_t>(1, std::min(most, cores.size()) / group.size());
}

/// Adds the cores of each rank of a group.
void divide(const std::vector<uint32_t>& group, const std::vector<Place>& places,
            std::map<uint32_t, std::vector<Core>>& cores) {
  const size_t each = cores_of_each(group, places);
  std::set<int> taken;
  for (const uint32_t member : group) {
    const std::vector<Core>& allowed = places[member].cores;
    std::vector<Core>& own = cores[member];
    for (const Core& core : allowed) {
      if (own.size() == each) break;
      if (std::ranges::any_of(core, [&](int cpu) { return taken.contains(cpu); })) continue;
      own.push_back(core);
      taken.insert(core.begin(), core.end());
    }
    if (own.empty()) own.push_back(allowed[member % allowed.size()]);
  }
}

}  // namespace

std::vector<int> own_cpus(const std::vector<Place>& places, uint32_t rank) {
  std::map<uint32_t, std::vector<Core>> cores;
  bool are_divided = false;
  for (uint32_t first = 0; first < places.size(); ++first) {
    if (places[first].cores.empty() || cores.contains(first)) continue;
    const std::vector<uint32_t> group = competitors_of(first, places);
    are_divided = are_divided || group.size() > 1;
    divide(group, places, cores);
  }
  if (!are_divided || !cores.contains(rank)) return {};
  size_t least = SIZE_MAX;
  for (const auto& [member, own] : cores) least = std::min(least, own.size());
  std::vector<int> cpus;
  for (size_t i = 0; i < least; ++i) {
    const Core& core = cores[rank][i];
    cpus.insert(cpus.end(), core.begin(), core.end());
  }
  return cpus;
}

std::string text_of(const Place& place) {
  std::string text = fmt::format("{}\n{}\n", place.computer, place.most_cores);
  for (const Core& core : place.cores) text += fmt::format("{}\n", fmt::join(core, " "));
  return text;
}

Place place_of(const std::string& text) {
  Place place;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, place.computer);
  std::getline(lines, line);
  std::istringstream(line) >> place.most_cores;
  while (std::getline(lines, line)) {
    std::istringstream cpus(line);
    Core& core = place.cores.emplace_back();
    for (int cpu = 0; cpus >> cpu;) core.push_back(cpu);
  }
  return place;
}

void divide_cores(Communicator& communicator, bool is_asked) {
  if (communicator.size() == 1) return;
  std::vector<Place> places;
  for (const std::string& text : all_gather(communicator, text_of(is_asked ? own_place() : Place())))
    places.push_back(place_of(text));
  if (const std::vector<int> cpus = own_cpus(places, communicator.rank()); !cpus.empty())
    machine::bind_process(cpus);
}

}  // namespace tessera::ranks
