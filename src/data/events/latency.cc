// Latency coding of images.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/recordings.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "data/events/binning.h"

namespace tessera {
namespace {

constexpr size_t kValues = 256;

/// The step in which a pixel of each value fires, if it does.
std::array<std::optional<uint16_t>, kValues> steps_of(uint32_t steps, const LatencySettings& settings) {
  std::array<std::optional<uint16_t>, kValues> at;
  for (size_t value = 0; value < kValues; ++value) {
    const double x = static_cast<double>(value) / (kValues - 1);
    if (x <= settings.threshold) continue;
    const double step = std::floor(settings.tau * std::log(x / (x - settings.threshold)));
    if (step < steps) at[value] = static_cast<uint16_t>(step);
  }
  return at;
}

}  // namespace

Recordings latency_coded(const ImageSet& images, uint32_t steps, const LatencySettings& settings) {
  train::check_sizes(steps, images.image_size(), images.classes);
  if (!(std::isfinite(settings.tau) && settings.tau > 0))
    throw UsageError(fmt::format("a time constant of {} steps; it must be above 0", settings.tau));
  if (!(settings.threshold > 0 && settings.threshold < 1))
    throw UsageError(
        fmt::format("a threshold of {}; pixels are from 0 to 1, and it must be between", settings.threshold));
  const auto at = steps_of(steps, settings);
  Recordings coded{.steps = steps,
                   .units = static_cast<uint32_t>(images.image_size()),
                   .classes = images.classes,
                   .labels = {images.labels.begin(), images.labels.end()}};
  for (size_t i = 0; i < images.count(); ++i) {
    const auto image = images.image(i);
    const auto first = static_cast<std::ptrdiff_t>(coded.events.size());
    for (size_t pixel = 0; pixel < image.size(); ++pixel)
      if (const auto step = at[image[pixel]]) coded.events.push_back({*step, static_cast<uint16_t>(pixel)});
    std::sort(coded.events.begin() + first, coded.events.end());
    coded.begin.push_back(coded.events.size());
  }
  return coded;
}

}  // namespace tessera
