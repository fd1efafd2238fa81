// Random manifolds (Zenke & Vogels 2021), with random numbers keyed by what they are for.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/recordings.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "data/events/binning.h"

namespace tessera {
namespace {

using base::RandomStream;

constexpr uint32_t kManifoldStream = 0x726D6100;
constexpr uint32_t kPointStream = 0x726D6101;
constexpr uint32_t kOrderStream = 0x726D6102;
constexpr double kPrecision = 1e-3;
constexpr double kMostWaves = 1000;
constexpr double kTiny = 1e-7;  // so that the last spike is within the steps

void check(const RandmanSettings& s, uint32_t steps) {
  train::check_sizes(steps, s.units, s.classes);
  constexpr uint32_t kMostDimensions = 100;
  if (s.dimensions == 0 || s.dimensions > kMostDimensions)
    throw UsageError(
        fmt::format("manifolds of {} dimensions; 1 to {} are possible", s.dimensions, kMostDimensions));
  if (!(s.alpha > 0 && s.alpha <= 100))
    throw UsageError(fmt::format("a smoothness of {}; it must be above 0 and at most 100", s.alpha));
  if (s.samples < 2 || uint64_t{s.samples} * s.classes * s.units > train::kMostEvents)
    throw UsageError(
        fmt::format("{} samples of each of {} classes; at least 2 are needed, and at most {} spikes",
                    s.samples, s.classes, train::kMostEvents));
}

/// The functions of one class.
class Manifold {
 public:
  Manifold(const RandmanSettings& settings, uint64_t seed, uint32_t of_class)
      : dimensions_(settings.dimensions),
        waves_(static_cast<uint32_t>(
            std::min(std::ceil(std::pow(kPrecision, -1 / settings.alpha)), kMostWaves))),
        random_(seed, of_class, kManifoldStream) {
    for (uint32_t i = 0; i < waves_; ++i) scale_.push_back(1 / (std::pow(i + 1.0, settings.alpha) + 1));
  }

  /// The function of a unit, at points [samples, dimensions].
  std::vector<double> values(uint32_t unit, const std::vector<double>& points) const {
    std::vector<double> y(points.size() / dimensions_, 1.0);
    for (uint32_t d = 0; d < dimensions_; ++d) {
      const Waves waves = waves_of(unit, d);
      for (size_t s = 0; s < y.size(); ++s) y[s] *= waves_at(waves, points[s * dimensions_ + d]);
    }
    return y;
  }

 private:
  struct Waves {
    std::vector<double> factor, frequency, phase;
  };

  // Element (kind, i) of [units][dimensions][3][waves].
  double uniform(uint32_t unit, uint32_t d, uint32_t kind, uint32_t i) const {
    return random_.uniform(((uint64_t{unit} * dimensions_ + d) * 3 + kind) * waves_ + i);
  }

  Waves waves_of(uint32_t unit, uint32_t d) const {
    Waves waves;
    for (uint32_t i = 0; i < waves_; ++i) {
      waves.factor.push_back(i == 0 ? 0 : uniform(unit, d, 0, i) * scale_[i]);
      waves.frequency.push_back(i * uniform(unit, d, 1, i));
      waves.phase.push_back(uniform(unit, d, 2, i));
    }
    return waves;
  }

  double waves_at(const Waves& waves, double x) const {
    double sum = 0;
    for (uint32_t i = 0; i < waves_; ++i)
      sum += waves.factor[i] * std::sin(2 * std::numbers::pi * (x * waves.frequency[i] + waves.phase[i]));
    return sum;
  }

  uint32_t dimensions_;
  uint32_t waves_;
  RandomStream random_;
  std::vector<double> scale_;
};

/// Scales values to [0, 1).
void standardise(std::vector<double>& y) {
  const auto [least, most] = std::ranges::minmax(y);
  for (double& value : y) value = (value - least) / (most - least + kTiny);
}

}  // namespace

Recordings randman(const RandmanSettings& settings, uint32_t steps, uint64_t seed) {
  check(settings, steps);
  // Times of all classes, [class · samples + sample][unit].
  std::vector<uint16_t> times(uint64_t{settings.classes} * settings.samples * settings.units);
  for (uint32_t c = 0; c < settings.classes; ++c) {
    const Manifold manifold(settings, seed, c);
    const RandomStream random(seed, c, kPointStream);
    std::vector<double> points(uint64_t{settings.samples} * settings.dimensions);
    for (size_t i = 0; i < points.size(); ++i) points[i] = random.uniform(i);
    for (uint32_t unit = 0; unit < settings.units; ++unit) {
      std::vector<double> y = manifold.values(unit, points);
      standardise(y);
      for (uint32_t s = 0; s < settings.samples; ++s)
        times[(uint64_t{c} * settings.samples + s) * settings.units + unit] =
            static_cast<uint16_t>(std::min(std::floor(steps * y[s]), steps - 1.0));
    }
  }
  std::vector<uint32_t> order(uint64_t{settings.classes} * settings.samples);
  std::iota(order.begin(), order.end(), 0U);
  base::RandomSequence(RandomStream(seed, 0, kOrderStream)).shuffle(order);
  Recordings all{.steps = steps, .units = settings.units, .classes = settings.classes};
  for (const uint32_t i : order) {
    const size_t first = all.events.size();
    for (uint32_t unit = 0; unit < settings.units; ++unit)
      all.events.push_back({times[uint64_t{i} * settings.units + unit], static_cast<uint16_t>(unit)});
    std::sort(all.events.begin() + static_cast<std::ptrdiff_t>(first), all.events.end());
    all.begin.push_back(all.events.size());
    all.labels.push_back(i / settings.samples);
  }
  return all;
}

}  // namespace tessera
