#include "train/spiking/digits.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>

#include "data/events/binning.h"

namespace tessera::train {
namespace {
constexpr uint32_t kParts = (1U << kDigits) - 1;
}  // namespace

float worth_of(uint32_t digit) {
  return static_cast<float>(1U << (kDigits - 1 - digit)) / static_cast<float>(kParts);
}

Recordings digits_of(const Recordings& currents) {
  check_sizes(currents.steps, uint64_t{currents.units} * kDigits, currents.classes);
  Recordings spikes{.steps = currents.steps,
                    .units = currents.units * kDigits,
                    .classes = currents.classes,
                    .labels = currents.labels};
  for (size_t i = 0; i < currents.count(); ++i) {
    const auto values = currents.current(i);
    for (size_t at = 0; at < values.size(); ++at) {
      if (!(values[at] >= 0 && values[at] <= 1))
        throw UsageError(fmt::format("recording {} has the current {}; currents are from 0 to 1: scale them",
                                     i, values[at]));
      const auto parts = static_cast<uint32_t>(std::lround(values[at] * kParts));
      for (uint32_t digit = 0; digit < kDigits; ++digit)
        if ((parts >> (kDigits - 1 - digit) & 1) != 0)
          spikes.events.push_back({static_cast<uint16_t>(at / currents.units),
                                   static_cast<uint16_t>(at % currents.units * kDigits + digit)});
    }
    spikes.begin.push_back(spikes.events.size());
  }
  return spikes;
}

}  // namespace tessera::train
