// Data sets of recordings by name.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/recordings.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include "data/events/aedat.h"
#include "data/events/binning.h"
#include "data/events/braille.h"
#include "data/events/event_folders.h"
#include "data/events/heidelberg.h"
#include "data/events/n_mnist.h"
#include "io/source.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using namespace train;

constexpr double kMicroseconds = 1e6;

/// A set's usual settings, and how it is read.
struct RecordingSet {
  std::string_view name;
  uint32_t steps;
  double seconds;
  uint32_t downscale;
  RecordingSplit (*load)(const fs::path& folder, const RecordingSettings& settings);
};

/// The folder itself or the first of its subfolders that has the file.
std::optional<fs::path> place_of(const fs::path& folder, const std::string& file,
                                 std::initializer_list<const char*> subfolders) {
  if (fs::exists(folder / file)) return folder;
  for (const char* subfolder : subfolders)
    if (fs::exists(folder / subfolder / file)) return folder / subfolder;
  return std::nullopt;
}

fs::path require_place(const fs::path& folder, const std::string& file,
                       std::initializer_list<const char*> subfolders, std::string_view what) {
  if (const auto place = place_of(folder, file, subfolders)) return *place;
  throw Error(fmt::format("{}: no {} here; expected is {}, in it or in {}/", folder.string(), what, file,
                          fmt::join(subfolders, "/, ")));
}

void count(const Binning& binning, RecordingSplit& split) {
  split.merged += binning.merged();
  split.outside += binning.outside();
}

RecordingSplit load_randman(const fs::path&, const RecordingSettings& s) {
  RecordingSplit split{.name = "Randman"};
  divide_into(split, randman(s.randman, s.steps, s.seed), s);
  return split;
}

RecordingSplit load_mnist(const fs::path& folder, const RecordingSettings& s) {
  const ImageSplit images = load_images(folder.string(), "mnist");
  return {.name = images.name + " by latency",
          .train = latency_coded(images.train, s.steps, s.latency),
          .test = latency_coded(images.test, s.steps, s.latency)};
}

RecordingSplit load_braille(const fs::path& folder, const RecordingSettings& s) {
  const fs::path place = require_place(folder, "taxels.npy", {"braille"}, "Braille recordings");
  const auto source = [&](const char* name) { return io::Source::open((place / name).string()); };
  RecordingSplit split{.name = "Braille"};
  divide_into(split, read_braille(source("taxels.npy"), source("lengths.npy"), source("labels.npy"), s.steps),
              s);
  return split;
}

RecordingSplit load_braille_delta(const fs::path& folder, const RecordingSettings& s) {
  RecordingSplit split = load_braille(folder, s);
  split.name = "Braille, events of changes";
  for (Recordings* part : {&split.train, &split.test}) *part = delta_coded(*part, s.delta);
  return split;
}

RecordingSplit load_heidelberg(const fs::path& folder, const RecordingSettings& s, const std::string& prefix,
                               std::string name, uint32_t classes) {
  const fs::path place = require_place(folder, prefix + "_train.h5", {prefix.c_str()}, name);
  RecordingSplit split{.name = std::move(name)};
  const auto read = [&](const char* part, Recordings& to) {
    to = {.steps = s.steps, .units = kHeidelbergUnits, .classes = classes};
    Binning binning(to, s.seconds);
    read_heidelberg(io::Hdf5File::open((place / fmt::format("{}_{}.h5", prefix, part)).string()), to,
                    binning);
    count(binning, split);
  };
  read("train", split.train);
  read("test", split.test);
  return split;
}

RecordingSplit load_shd(const fs::path& folder, const RecordingSettings& s) {
  constexpr uint32_t kDigits = 20;
  return load_heidelberg(folder, s, "shd", "SHD", kDigits);
}

RecordingSplit load_ssc(const fs::path& folder, const RecordingSettings& s) {
  constexpr uint32_t kCommands = 35;
  return load_heidelberg(folder, s, "ssc", "SSC", kCommands);
}

RecordingSplit load_n_mnist(const fs::path& folder, const RecordingSettings& s) {
  const fs::path place =
      require_place(folder, "Train", {"n-mnist", "nmnist", "N-MNIST", "NMNIST"}, "N-MNIST");
  const SensorView view(kNMnistSide, kNMnistSide, s);
  RecordingSplit split{.name = "N-MNIST"};
  const auto read = [&](const char* part, Recordings& to) {
    constexpr uint32_t kDigits = 10;
    to = {.steps = s.steps, .units = view.units(), .classes = kDigits};
    Binning binning(to, s.seconds * kMicroseconds);
    for (uint32_t digit = 0; digit < kDigits; ++digit)
      for (const std::string& file : files_of(place / part / std::to_string(digit), ".bin"))
        binning.add(seen_through(view, read_n_mnist(io::Source::open(file)), 0, split.outside), digit);
    count(binning, split);
  };
  read("Train", split.train);
  read("Test", split.test);
  return split;
}

/// Adds the gestures of a recording.
void add_gestures(const fs::path& aedat, const SensorView& view, Binning& binning, uint64_t& outside) {
  fs::path list = aedat;
  list.replace_extension();
  list += "_labels.csv";
  const std::vector<PixelEvent> events = read_aedat(io::Source::open(aedat.string()));
  const auto before = [](const PixelEvent& event, int64_t time) { return event.time < time; };
  if (!std::ranges::is_sorted(events, {}, &PixelEvent::time))
    throw Error(aedat.string() + ": times of events go back; it may be damaged");
  for (const Gesture& gesture : read_gestures(io::Source::open(list.string()))) {
    const auto first = std::lower_bound(events.begin(), events.end(), gesture.begin, before);
    const auto last = std::lower_bound(first, events.end(), gesture.end, before);
    binning.add(seen_through(view, {first, last}, gesture.begin, outside), gesture.label);
  }
}

RecordingSplit load_gestures(const fs::path& folder, const RecordingSettings& s) {
  const fs::path place =
      require_place(folder, "trials_to_train.txt", {"dvs-gesture", "DvsGesture"}, "DVS128 Gesture");
  const SensorView view(kDvsSide, kDvsSide, s);
  RecordingSplit split{.name = "DVS128 Gesture"};
  const auto read = [&](const char* trials, Recordings& to) {
    to = {.steps = s.steps, .units = view.units(), .classes = kGestures};
    Binning binning(to, s.seconds * kMicroseconds);
    for (const std::string& name : lines_of((place / trials).string()))
      add_gestures(place / name, view, binning, split.outside);
    count(binning, split);
  };
  read("trials_to_train.txt", split.train);
  read("trials_to_test.txt", split.test);
  return split;
}

constexpr std::array<RecordingSet, 9> kSets = {{
    {"randman", 100, 0, 1, load_randman},
    {"mnist-latency", 100, 0, 1, load_mnist},
    {"braille", 152, 0, 1, load_braille},
    {"braille-delta", 152, 0, 1, load_braille_delta},
    {"shd", 100, 1.4, 1, load_shd},
    {"ssc", 100, 1.4, 1, load_ssc},
    {"n-mnist", 100, 0.3, 1, load_n_mnist},
    {"dvs-gesture", 100, 6, 4, load_gestures},
    {"events", 100, 0, 1, load_event_folders},
}};

constexpr auto kNames = [] {
  std::array<std::string_view, kSets.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kSets[i].name;
  return names;
}();

void check(const RecordingSettings& s) {
  check_sizes(s.steps, 1, 1);
  if (!std::isfinite(s.seconds) || s.seconds < 0)
    throw UsageError(fmt::format("a window of {} s; it must be above 0", s.seconds));
  if (!(s.test > 0 && s.test < 1))
    throw UsageError(fmt::format("a fraction of {} for testing; it must be between 0 and 1", s.test));
}

}  // namespace

std::span<const std::string_view> recording_sets() { return kNames; }

RecordingSplit load_recordings(const std::string& name, const std::string& folder,
                               const RecordingSettings& settings) {
  const auto set = std::ranges::find(kSets, name, &RecordingSet::name);
  if (set == kSets.end())
    throw UsageError(
        fmt::format("unknown set of recordings '{}' (choose from {})", name, fmt::join(kNames, ", ")));
  RecordingSettings s = settings;
  if (s.steps == 0) s.steps = set->steps;
  if (s.seconds == 0) s.seconds = set->seconds;
  if (s.downscale == 0) s.downscale = set->downscale;
  check(s);
  return set->load(folder, s);
}

}  // namespace tessera
