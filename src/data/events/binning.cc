#include "data/events/binning.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "data/samples.h"

namespace tessera::train {

void check_sizes(uint32_t steps, uint64_t units, uint64_t classes) {
  if (steps == 0 || steps > kMostSteps)
    throw UsageError(fmt::format("recordings of {} steps; 1 to {} are possible", steps, kMostSteps));
  if (units == 0 || units > kMostUnits)
    throw UsageError(fmt::format("recordings of {} units; 1 to {} are possible", units, kMostUnits));
  if (classes == 0 || classes > kMostClasses)
    throw UsageError(fmt::format("recordings of {} classes; 1 to {} are possible", classes, kMostClasses));
}

void Binning::add(std::span<const TimedEvent> events, uint32_t label) {
  const auto first = static_cast<std::ptrdiff_t>(to_.events.size());
  for (const TimedEvent& event : events) {
    const double step = event.time * to_.steps / window_;
    if (event.time < 0 || !(step < to_.steps)) {
      ++outside_;
      continue;
    }
    to_.events.push_back({static_cast<uint16_t>(step), static_cast<uint16_t>(event.unit)});
  }
  std::sort(to_.events.begin() + first, to_.events.end());
  const auto end = std::unique(to_.events.begin() + first, to_.events.end());
  merged_ += static_cast<uint64_t>(to_.events.end() - end);
  to_.events.erase(end, to_.events.end());
  if (to_.events.size() > kMostEvents)
    throw UsageError(
        fmt::format("more than {} spikes in a set of recordings; fewer steps, a shorter window or coarser "
                    "pixels give fewer",
                    kMostEvents));
  to_.begin.push_back(to_.events.size());
  to_.labels.push_back(label);
}

SensorView::SensorView(uint32_t width, uint32_t height, const RecordingSettings& settings)
    : downscale_(std::max(1U, settings.downscale)) {
  uint32_t cropped_width = width, cropped_height = height;
  if (settings.crop != 0) {
    if (settings.crop > width || settings.crop > height)
      throw UsageError(fmt::format("a sensor of {} × {} pixels cannot be cropped to a side of {}", width,
                                   height, settings.crop));
    left_ = (width - settings.crop) / 2;
    top_ = (height - settings.crop) / 2;
    cropped_width = cropped_height = settings.crop;
  }
  if (downscale_ > cropped_width || downscale_ > cropped_height)
    throw UsageError(fmt::format("{} × {} pixels of a sensor cannot be divided into squares of {}",
                                 cropped_width, cropped_height, downscale_));
  cols_ = cropped_width / downscale_;
  rows_ = cropped_height / downscale_;
  const uint64_t units = uint64_t{2} * rows_ * cols_;
  if (units > kMostUnits)
    throw UsageError(
        fmt::format("a sensor of {} × {} pixels has {} units, and at most {} are possible: "
                    "crop it, or downscale it",
                    cropped_width, cropped_height, units, kMostUnits));
}

uint32_t SensorView::unit_of(const PixelEvent& event) const {
  if (event.x < left_ || event.y < top_) return kNone;
  const uint32_t col = (event.x - left_) / downscale_, row = (event.y - top_) / downscale_;
  if (col >= cols_ || row >= rows_) return kNone;
  return (event.polarity * rows_ + row) * cols_ + col;
}

std::vector<TimedEvent> seen_through(const SensorView& view, std::span<const PixelEvent> events,
                                     int64_t start, uint64_t& outside) {
  std::vector<TimedEvent> seen;
  seen.reserve(events.size());
  for (const PixelEvent& event : events) {
    const uint32_t unit = view.unit_of(event);
    if (unit == SensorView::kNone)
      ++outside;
    else
      seen.push_back({static_cast<double>(event.time - start), unit});
  }
  return seen;
}

Recordings part_of(const Recordings& all, std::span<const uint32_t> which) {
  Recordings part{.steps = all.steps, .units = all.units, .classes = all.classes};
  for (const uint32_t i : which) {
    part.labels.push_back(all.labels[i]);
    if (all.are_currents()) {
      const auto current = all.current(i);
      part.currents.insert(part.currents.end(), current.begin(), current.end());
    } else {
      const auto spikes = all.spikes(i);
      part.events.insert(part.events.end(), spikes.begin(), spikes.end());
      part.begin.push_back(part.events.size());
    }
  }
  return part;
}

void divide_into(RecordingSplit& split, const Recordings& all, const RecordingSettings& settings) {
  const Division division = divide(all.count(), settings.test, settings.seed);
  if (division.training.empty() || division.validation.empty())
    throw UsageError(
        fmt::format("{} recordings cannot be divided into {:.4g} for testing and the rest for "
                    "training; at least one of each is needed",
                    all.count(), settings.test));
  split.train = part_of(all, division.training);
  split.test = part_of(all, division.validation);
}

}  // namespace tessera::train
