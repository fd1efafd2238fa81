// Binning of timed events into steps.
#pragma once

#include <tessera/recordings.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::train {

/// Limits of recordings, set by what lists of spikes can hold.
inline constexpr uint32_t kMostSteps = 1U << 16;
inline constexpr uint32_t kMostUnits = 1U << 16;
/// Maximum number of classes of a data set, and of its events in total.
inline constexpr uint32_t kMostClasses = 1U << 10;
inline constexpr uint64_t kMostEvents = uint64_t{1} << 31;

/// An event of a file, before binning.
struct TimedEvent {
  double time = 0;
  uint32_t unit = 0;
};

/// An event of a sensor of pixels.
struct PixelEvent {
  int64_t time = 0;  ///< µs
  uint16_t x = 0;
  uint16_t y = 0;
  uint8_t polarity = 0;

  bool operator==(const PixelEvent&) const = default;
};

/// Throws UsageError for impossible numbers of steps, units or classes.
void check_sizes(uint32_t steps, uint64_t units, uint64_t classes);

/// Adds recordings whose events have times. Time t of a window w becomes step ⌊t / w · steps⌋; events before
/// 0 or from w on are left out.
class Binning {
 public:
  /// Adds to a set that has steps and units. `window` has the unit of times.
  Binning(Recordings& to, double window) : to_(to), window_(window) {}

  void add(std::span<const TimedEvent> events, uint32_t label);

  uint64_t merged() const { return merged_; }
  uint64_t outside() const { return outside_; }

 private:
  Recordings& to_;
  double window_;
  uint64_t merged_ = 0;
  uint64_t outside_ = 0;
};

/// The part of a sensor that becomes units: its middle, if it is cropped, divided into squares of pixels.
class SensorView {
 public:
  /// Throws UsageError if nothing or more than 65,536 units would be left.
  SensorView(uint32_t width, uint32_t height, const RecordingSettings& settings);

  uint32_t units() const { return 2 * rows_ * cols_; }
  /// (polarity · rows + row) · columns + column; kNone outside the part.
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t unit_of(const PixelEvent& event) const;

 private:
  uint32_t left_ = 0, top_ = 0;
  uint32_t downscale_ = 1;
  uint32_t rows_ = 0, cols_ = 0;
};

/// Events of one recording as units with times in µs from `start` on; adds the number of events outside the
/// part to `outside`.
std::vector<TimedEvent> seen_through(const SensorView& view, std::span<const PixelEvent> events,
                                     int64_t start, uint64_t& outside);

/// The recordings `which` of a set, in this order.
Recordings part_of(const Recordings& all, std::span<const uint32_t> which);

/// Divides a set at random into recordings for training and testing. Throws UsageError if either is empty.
void divide_into(RecordingSplit& split, const Recordings& all, const RecordingSettings& settings);

}  // namespace tessera::train
