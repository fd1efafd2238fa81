// Labelled recordings of spikes and currents: data sets in files, synthetic data sets, and latency-coded
// images.
#pragma once

#include <tessera/images.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Unit `unit` fires in time step `step`.
struct SpikeEvent {
  uint16_t step = 0;
  uint16_t unit = 0;

  auto operator<=>(const SpikeEvent&) const = default;
};

/// Labelled recordings of spikes or of currents, all of one length.
struct Recordings {
  uint32_t steps = 0;  ///< at most 65,536
  uint32_t units = 0;  ///< at most 65,536
  uint32_t classes = 0;
  std::vector<uint32_t> labels = {};  ///< class of each recording
  /// Spikes: events[begin[i]] to events[begin[i + 1] - 1] belong to recording i, sorted by step, then by
  /// unit, without duplicates: several events of a unit in a step are one spike.
  std::vector<uint64_t> begin = {0};
  std::vector<SpikeEvent> events = {};
  /// Currents, recording after recording, each [steps, units]. A set with currents has no spikes.
  std::vector<float> currents = {};

  size_t count() const { return labels.size(); }
  bool are_currents() const { return !currents.empty(); }
  std::span<const SpikeEvent> spikes(size_t i) const {
    return {events.data() + begin[i], events.data() + begin[i + 1]};
  }
  std::span<const float> current(size_t i) const {
    const size_t size = size_t{steps} * units;
    return {currents.data() + i * size, size};
  }
};

/// Recordings for training and testing.
struct RecordingSplit {
  std::string name;
  Recordings train = {};
  Recordings test = {};
  // Numbers of events that are left out:
  uint64_t merged = 0;  ///< because their unit had fired in their step
  /// Because they lie outside the window, or outside the part of the sensor that is kept.
  uint64_t outside = 0;
};

/// Synthetic recordings whose information is in the times of spikes alone (Zenke & Vogels 2021): each unit
/// fires once, at a time that is a smooth random function of a point on a manifold, one function for each
/// unit and class.
struct RandmanSettings {
  uint32_t units = 20;
  uint32_t classes = 10;
  uint32_t dimensions = 1;  ///< dimensions of the manifolds
  double alpha = 2;         ///< smoothness
  uint32_t samples = 1000;  ///< samples of each class
};
Recordings randman(const RandmanSettings& settings, uint32_t steps, uint64_t seed);

/// How spikes code a pixel x, from 0 to 1: the time at which a leaky integrator with time constant tau and a
/// constant current x reaches the threshold, tau · ln(x / (x − threshold)) steps, rounded down. Pixels up to
/// the threshold do not fire, nor do pixels whose time is not before the end of the recording.
struct LatencySettings {
  double tau = 20;  ///< time constant, in steps
  double threshold = 0.2;
};
/// Latency-coded images, with one unit per pixel of each channel.
Recordings latency_coded(const ImageSet& images, uint32_t steps, const LatencySettings& settings = {});

/// How recordings are read and divided into time steps. Settings that are 0 take the defaults of
/// load_recordings() for the data set.
struct RecordingSettings {
  uint32_t steps = 0;
  double seconds = 0;      ///< length of the window, from the beginning of each recording, that is divided
                           ///< into steps
  uint32_t crop = 0;       ///< side of the central square of a sensor that is kept; 0: the whole sensor
  uint32_t downscale = 0;  ///< side of the squares of pixels that are merged into one
  double delta = 0.02;     ///< change of a current, from 0 to 1, for each event of "braille-delta"
  double test = 0.2;       ///< fraction held out for testing, if a data set has no test set
  LatencySettings latency = {};
  RandmanSettings randman = {};
  uint64_t seed = 0;  ///< seed of the division into training and test set, and of Randman
};

/// The data sets that load_recordings() knows.
std::span<const std::string_view> recording_sets();

/// Loads a data set from a folder, or from its usual subfolder. By default it has these steps, seconds and
/// `downscale`:
///
///     randman        100            made from the seed, without files
///     mnist-latency  100            MNIST, as load_images() finds it
///     braille        152            taxels.npy, lengths.npy, labels.npy: currents
///     braille-delta  152            braille's files; one unit for rises and one for falls by `delta`
///     shd, ssc       100, 1.4 s     shd_train.h5, shd_test.h5; ssc_….h5
///     n-mnist        100, 0.3 s, 1  Train/0/….bin, Test/0/….bin
///     dvs-gesture    100, 6 s, 4    trials_to_train.txt, trials_to_test.txt, ….aedat, ….csv
///     events         100, 1         CLASS/….npy, or train/CLASS/….npy and test/CLASS/….npy
///
/// Throws UsageError for settings out of range, Error for missing and malformed files.
RecordingSplit load_recordings(const std::string& name, const std::string& folder,
                               const RecordingSettings& settings = {});

}  // namespace tessera
