#include "data/events/heidelberg.h"

#include <cmath>
#include <vector>

#include "io/fail.h"

namespace tessera::train {
namespace {

constexpr uint64_t kMostRecordings = uint64_t{1} << 24;
constexpr uint64_t kMostSpikes = uint64_t{1} << 24;  // of a recording
constexpr const char* kTimes = "spikes/times";
constexpr const char* kUnits = "spikes/units";
constexpr const char* kLabels = "labels";

std::vector<uint32_t> labels_of(const io::Hdf5File& file, uint32_t classes) {
  std::vector<uint32_t> labels;
  for (const double label : file.numbers(kLabels, kMostRecordings)) {
    if (!(label >= 0 && label < classes) || label != std::floor(label))
      io::fail(file.name(), "recording {} has the label {}; classes are 0 to {}", labels.size(), label,
               classes - 1);
    labels.push_back(static_cast<uint32_t>(label));
  }
  return labels;
}

/// The units of all recordings, which are stored apart from the times.
struct Units {
  std::vector<uint64_t> begin = {0};
  std::vector<uint16_t> units;
};

Units units_of(const io::Hdf5File& file) {
  Units all;
  file.each_list(kUnits, [&](uint64_t i, std::span<const double> list) {
    if (list.size() > kMostSpikes || all.units.size() + list.size() > kMostEvents)
      io::fail(file.name(), "recording {} has {} spikes; at most {} are possible", i, list.size(),
               kMostSpikes);
    for (const double unit : list) {
      if (!(unit >= 0 && unit < kHeidelbergUnits) || unit != std::floor(unit))
        io::fail(file.name(), "recording {} has unit {}; they are below {}", i, unit, kHeidelbergUnits);
      all.units.push_back(static_cast<uint16_t>(unit));
    }
    all.begin.push_back(all.units.size());
  });
  return all;
}

}  // namespace

void read_heidelberg(const io::Hdf5File& file, Recordings& to, Binning& binning) {
  const std::vector<uint32_t> labels = labels_of(file, to.classes);
  for (const char* lists : {kTimes, kUnits})
    if (file.size(lists) != labels.size())
      io::fail(file.name(), "{} lists in {} and {} labels", file.size(lists), lists, labels.size());
  const Units units = units_of(file);
  std::vector<TimedEvent> events;
  file.each_list(kTimes, [&](uint64_t i, std::span<const double> times) {
    const uint64_t begin = units.begin[i], count = units.begin[i + 1] - begin;
    if (times.size() != count)
      io::fail(file.name(), "recording {} has {} times and {} units of spikes", i, times.size(), count);
    events.clear();
    for (uint64_t e = 0; e < count; ++e) {
      if (!std::isfinite(times[e])) io::fail(file.name(), "recording {} has a spike at time {}", i, times[e]);
      events.push_back({times[e], units.units[begin + e]});
    }
    binning.add(events, labels[i]);
  });
}

}  // namespace tessera::train
