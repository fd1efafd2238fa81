#include "data/events/braille.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <vector>

#include "data/events/event_array.h"
#include "io/fail.h"
#include "io/npy_integers.h"

namespace tessera::train {
namespace {

constexpr int64_t kUntouched = 255;

io::NpyIntegers one_each(const io::Source& source, uint64_t recordings, int64_t most) {
  io::NpyIntegers array = io::read_npy_integers(source, kMostValues);
  if (!array.fields.empty() || array.shape.size() != 1 || array.shape[0] != recordings)
    io::fail(source.name(), "not one number for each of the {} recordings", recordings);
  for (const int64_t value : array.values)
    if (value < 0 || value > most) io::fail(source.name(), "the value {}; 0 to {} are possible", value, most);
  return array;
}

/// Interpolates the first `length` rows of `samples` to `steps` steps of currents.
void interpolate(const int64_t* samples, uint64_t length, uint32_t sensors, uint32_t steps,
                 std::vector<float>& to) {
  for (uint32_t t = 0; t < steps; ++t) {
    const double place =
        steps == 1 ? 0 : static_cast<double>(t) * static_cast<double>(length - 1) / (steps - 1);
    const auto below = std::min(static_cast<uint64_t>(place), length - 1);
    const uint64_t above = std::min(below + 1, length - 1);
    const double part = place - static_cast<double>(below);
    for (uint32_t s = 0; s < sensors; ++s) {
      const auto a = static_cast<double>(samples[below * sensors + s]),
                 b = static_cast<double>(samples[above * sensors + s]);
      to.push_back(static_cast<float>((kUntouched - (a + part * (b - a))) / kUntouched));
    }
  }
}

}  // namespace

Recordings read_braille(const io::Source& taxels, const io::Source& lengths, const io::Source& labels,
                        uint32_t steps) {
  const io::NpyIntegers array = io::read_npy_integers(taxels, kMostValues);
  const std::string& name = taxels.name();
  if (!array.fields.empty() || array.shape.size() != 3 || array.shape[0] == 0 || array.shape[1] == 0)
    io::fail(name, "{} dimensions; expected are numbers [recordings, samples, sensors]", array.shape.size());
  for (const int64_t value : array.values)
    if (value < 0 || value > kUntouched)
      io::fail(name, "the value {}; pressures are from 0 to {}", value, kUntouched);
  const uint64_t count = array.shape[0], samples = array.shape[1], sensors = array.shape[2];
  const io::NpyIntegers length = one_each(lengths, count, static_cast<int64_t>(samples));
  const io::NpyIntegers label = one_each(labels, count, kMostClasses - 1);
  const auto classes = static_cast<uint32_t>(*std::ranges::max_element(label.values) + 1);
  check_sizes(steps, sensors, classes);
  if (count * steps * sensors > kMostValues)
    io::fail(name, "{} recordings of {} steps have more than {} values; fewer steps are possible", count,
             steps, kMostValues);
  Recordings all{.steps = steps, .units = static_cast<uint32_t>(sensors), .classes = classes};
  for (uint64_t i = 0; i < count; ++i) {
    if (length.values[i] == 0) io::fail(lengths.name(), "recording {} has no samples", i);
    interpolate(array.values.data() + i * samples * sensors, static_cast<uint64_t>(length.values[i]),
                all.units, steps, all.currents);
    all.labels.push_back(static_cast<uint32_t>(label.values[i]));
  }
  return all;
}

Recordings delta_coded(const Recordings& currents, double delta) {
  if (!(delta > 0 && delta <= 1))
    throw UsageError(
        fmt::format("events for each change of a current by {}; it must be above 0 and at most 1", delta));
  Recordings coded{.steps = currents.steps,
                   .units = 2 * currents.units,
                   .classes = currents.classes,
                   .labels = currents.labels};
  check_sizes(coded.steps, coded.units, coded.classes);
  for (size_t i = 0; i < currents.count(); ++i) {
    const auto current = currents.current(i);
    std::vector<double> reference(current.begin(), current.begin() + currents.units);
    for (uint32_t t = 1; t < currents.steps; ++t)
      for (uint32_t f = 0; f < currents.units; ++f) {
        const double change = current[size_t{t} * currents.units + f] - reference[f];
        const bool rises = change >= delta, falls = change <= -delta;
        if (!rises && !falls) continue;
        reference[f] += rises ? delta : -delta;
        coded.events.push_back({static_cast<uint16_t>(t), static_cast<uint16_t>(2 * f + (falls ? 1 : 0))});
      }
    coded.begin.push_back(coded.events.size());
  }
  return coded;
}

}  // namespace tessera::train
