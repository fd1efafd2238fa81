// Recordings: brought into steps, synthetic, coded, loaded from folders, batched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/recordings.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "base/random.h"
#include "data/events/binning.h"
#include "data/events/braille.h"
#include "data/events/recording_batch.h"
#include "io/files.h"
#include "support/error_of.h"
#include "support/event_files.h"

namespace tessera::train {
namespace {

using test::error_of;
using test::in_memory;
using test::little_endian;
using test::npy_file;
using test::says;
using test::TemporaryFolder;
using ::testing::ElementsAre;

void require_sound(const Recordings& r) {
  ASSERT_EQ(r.begin.size(), r.are_currents() ? 1 : r.count() + 1);
  for (const uint32_t label : r.labels) ASSERT_LT(label, r.classes);
  for (size_t i = 0; i < r.count() && !r.are_currents(); ++i) {
    const auto spikes = r.spikes(i);
    for (const SpikeEvent& event : spikes) {
      ASSERT_LT(event.step, r.steps);
      ASSERT_LT(event.unit, r.units);
    }
    ASSERT_TRUE(std::ranges::adjacent_find(spikes, std::greater_equal<>()) == spikes.end());
  }
}

TEST(Binning, TimesBecomeStepsAndRepetitionsOneSpike) {
  Recordings to{.steps = 10, .units = 4, .classes = 2};
  Binning binning(to, 50);
  const std::vector<TimedEvent> events = {{49, 1}, {0, 3},  {4.9, 3}, {5, 0},
                                          {-1, 0}, {50, 0}, {5.5, 3}, {7, 0}};
  binning.add(events, 1);
  binning.add({}, 0);
  EXPECT_THAT(to.labels, ElementsAre(1, 0));
  EXPECT_THAT(to.spikes(0),
              ElementsAre(SpikeEvent{0, 3}, SpikeEvent{1, 0}, SpikeEvent{1, 3}, SpikeEvent{9, 1}));
  EXPECT_TRUE(to.spikes(1).empty());
  EXPECT_EQ(binning.merged(), 2u);
  EXPECT_EQ(binning.outside(), 2u);
}

TEST(Binning, WholeNumbersFallIntoTheirSteps) {
  Recordings to{.steps = 7, .units = 1, .classes = 1};
  Binning binning(to, 700'007);
  for (uint32_t step = 0; step < 7; ++step) {
    const TimedEvent first{step * 100'001.0, 0}, last{step * 100'001.0 + 100'000, 0};
    for (const TimedEvent& event : {first, last}) {
      binning.add(std::span(&event, 1), 0);
      EXPECT_EQ(to.events.back().step, step);
    }
  }
}

TEST(SensorViews, TheMiddleIsKeptInSquares) {
  const SensorView whole(4, 3, {});
  EXPECT_EQ(whole.units(), 24u);
  EXPECT_EQ(whole.unit_of({0, 3, 2, 1}), 23u);
  EXPECT_EQ(whole.unit_of({0, 1, 0, 0}), 1u);
  const SensorView part(34, 34, {.crop = 24, .downscale = 4});
  EXPECT_EQ(part.units(), 72u);
  EXPECT_EQ(part.unit_of({0, 5, 5, 0}), 0u);
  EXPECT_EQ(part.unit_of({0, 8, 8, 0}), 0u);
  EXPECT_EQ(part.unit_of({0, 9, 5, 1}), 37u);
  EXPECT_EQ(part.unit_of({0, 28, 28, 1}), 71u);
  EXPECT_EQ(part.unit_of({0, 4, 10, 0}), SensorView::kNone);
  EXPECT_EQ(part.unit_of({0, 29, 10, 0}), SensorView::kNone);
  uint64_t outside = 0;
  const std::vector<PixelEvent> events = {{100, 5, 5, 0}, {101, 0, 0, 0}, {102, 28, 28, 1}};
  const auto seen = seen_through(part, events, 100, outside);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].time, 2);
  EXPECT_EQ(seen[1].unit, 71u);
  EXPECT_EQ(outside, 1u);
}

TEST(SensorViews, ImpossibleOnesAreRefused) {
  EXPECT_ERROR("34 × 20 pixels cannot be cropped to a side of 24", SensorView(34, 20, {.crop = 24}));
  EXPECT_ERROR("cannot be divided into squares of 21", SensorView(34, 20, {.downscale = 21}));
  EXPECT_ERROR("has 614400 units, and at most 65536", SensorView(640, 480, {}));
}

TEST(Randman, EachUnitFiresOnceAtATimeThatDependsOnTheClass) {
  const RandmanSettings settings{.units = 6, .classes = 3, .samples = 200};
  const Recordings r = randman(settings, 50, 4);
  require_sound(r);
  EXPECT_EQ(r.count(), 600u);
  std::map<uint32_t, std::vector<std::pair<int, int>>> range;  // of each class, by unit
  for (size_t i = 0; i < r.count(); ++i) {
    std::vector<int> units;
    auto& of_class = range[r.labels[i]];
    of_class.resize(6, {1000, -1});
    for (const SpikeEvent& event : r.spikes(i)) {
      units.push_back(event.unit);
      auto& [least, most] = of_class[event.unit];
      least = std::min<int>(least, event.step);
      most = std::max<int>(most, event.step);
    }
    std::ranges::sort(units);
    EXPECT_THAT(units, ElementsAre(0, 1, 2, 3, 4, 5));
  }
  ASSERT_EQ(range.size(), 3u);
  for (const auto& [label, of_class] : range)
    for (const auto& [least, most] : of_class) {
      EXPECT_EQ(least, 0);
      EXPECT_EQ(most, 49);
    }
}

TEST(Randman, FollowsFromTheSeed) {
  const RandmanSettings settings{.units = 5, .classes = 2, .dimensions = 2, .alpha = 1.5, .samples = 20};
  const Recordings a = randman(settings, 40, 1), b = randman(settings, 40, 1), c = randman(settings, 40, 2);
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_NE(a.events, c.events);
  EXPECT_ERROR("1 samples of each of 10 classes; at least 2", randman({.samples = 1}, 100, 0));
  EXPECT_ERROR("manifolds of 0 dimensions", randman({.dimensions = 0}, 100, 0));
  EXPECT_ERROR("a smoothness of 0", randman({.alpha = 0}, 100, 0));
  EXPECT_ERROR("recordings of 0 steps", randman({}, 0, 0));
}

TEST(Randman, TimesAreThoseOfTheDefinition) {
  const RandmanSettings settings{.units = 3, .classes = 2, .dimensions = 2, .alpha = 1.5, .samples = 30};
  const uint32_t steps = 1000, waves = 100;  // ⌈0.001^(−1 / 1.5)⌉
  const Recordings r = randman(settings, steps, 9);
  for (uint32_t c = 0; c < settings.classes; ++c) {
    const base::RandomStream theta(9, c, 0x726D6100), points(9, c, 0x726D6101);
    std::vector<std::vector<double>> y(settings.units, std::vector<double>(settings.samples, 1.0));
    for (uint32_t u = 0; u < settings.units; ++u) {
      for (uint32_t s = 0; s < settings.samples; ++s)
        for (uint32_t d = 0; d < 2; ++d) {
          const auto of = [&](uint32_t kind, uint32_t i) {
            return theta.uniform(uint64_t{u} * 2 * 3 * waves + d * 3 * waves + kind * waves + i);
          };
          double f = 0;
          for (uint32_t i = 1; i < waves; ++i)
            f += of(0, i) / (std::pow(i + 1, 1.5) + 1) *
                 std::sin(2 * 3.14159265358979323846 *
                          (i * double{points.uniform(s * 2 + d)} * of(1, i) + of(2, i)));
          y[u][s] *= f;
        }
      const auto [least, most] = std::ranges::minmax(y[u]);
      for (double& value : y[u]) value = (value - least) / (most - least);
    }
    // The times of the units of each sample; as a multiset, because recordings are shuffled.
    std::vector<std::vector<int>> expected, found;
    for (uint32_t s = 0; s < settings.samples; ++s) {
      auto& times = expected.emplace_back();
      for (uint32_t u = 0; u < settings.units; ++u)
        times.push_back(std::min(static_cast<int>(steps * y[u][s]), static_cast<int>(steps) - 1));
    }
    for (size_t i = 0; i < r.count(); ++i) {
      if (r.labels[i] != c) continue;
      auto& times = found.emplace_back(settings.units);
      for (const SpikeEvent& event : r.spikes(i)) times[event.unit] = event.step;
    }
    std::ranges::sort(expected);
    std::ranges::sort(found);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      for (uint32_t u = 0; u < settings.units; ++u) EXPECT_NEAR(found[i][u], expected[i][u], 1);
  }
}

TEST(Latency, BrightPixelsFireFirst) {
  ImageSet images{1, 1, 5, 10, {255, 128, 51, 52, 0}, {7}};
  const Recordings r = latency_coded(images, 100, {.tau = 20, .threshold = 0.2});
  require_sound(r);
  EXPECT_THAT(r.labels, ElementsAre(7));
  // 20 · ln(x / (x − 0.2)): 4.46, 10.16, and 79.02 of the pixel just above the threshold; 51 / 255 is not.
  EXPECT_THAT(r.spikes(0), ElementsAre(SpikeEvent{4, 0}, SpikeEvent{10, 1}, SpikeEvent{79, 3}));
  EXPECT_THAT(latency_coded(images, 50, {}).spikes(0), ElementsAre(SpikeEvent{4, 0}, SpikeEvent{10, 1}));
  EXPECT_ERROR("a time constant of 0 steps", latency_coded(images, 9, {.tau = 0}));
  EXPECT_ERROR("a threshold of 1", latency_coded(images, 9, {.threshold = 1}));
}

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (int value : values) text += static_cast<char>(value);
  return text;
}

Recordings braille(const std::string& taxels, const std::string& lengths, const std::string& labels,
                   uint32_t steps) {
  return read_braille(in_memory(taxels), in_memory(lengths), in_memory(labels), steps);
}

TEST(Braille, PressuresAreInterpolated) {
  const std::string taxels = npy_file("'|u1'", "(2, 3, 1)", bytes({255, 0, 7, 255, 204, 0}));
  const Recordings r =
      braille(taxels, npy_file("'|u1'", "(2,)", bytes({2, 3})), npy_file("'|u1'", "(2,)", bytes({4, 0})), 5);
  EXPECT_TRUE(r.are_currents());
  EXPECT_EQ(r.units, 1u);
  EXPECT_EQ(r.classes, 5u);
  EXPECT_THAT(r.labels, ElementsAre(4, 0));
  EXPECT_THAT(r.current(0), ElementsAre(0, 0.25F, 0.5F, 0.75F, 1));
  EXPECT_THAT(r.current(1),
              ElementsAre(0, testing::FloatEq(0.1F), testing::FloatEq(0.2F), testing::FloatEq(0.6F), 1));
}

TEST(Braille, ArraysMustFit) {
  const std::string taxels = npy_file("'|u1'", "(2, 2, 1)", "abcd"), two = npy_file("'|u1'", "(2,)", "\1\2"),
                    three = npy_file("'|u1'", "(3,)", "\1\2\3"),
                    zero = npy_file("'|u1'", "(2,)", bytes({0, 1}));
  const auto error = [](const std::string& a, const std::string& b, const std::string& c,
                        uint32_t steps = 4) { return error_of([&] { braille(a, b, c, steps); }); };
  EXPECT_EQ(error(taxels, two, two), "(no error)");
  EXPECT_TRUE(
      says(error(two, two, two), "1 dimensions; expected are numbers [recordings, samples, sensors]"));
  EXPECT_TRUE(says(error(taxels, three, two), "not one number for each of the 2 recordings"));
  EXPECT_TRUE(says(error(taxels, zero, two), "recording 0 has no samples"));
  EXPECT_TRUE(
      says(error(taxels, npy_file("'|u1'", "(2,)", "\1\3"), two), "the value 3; 0 to 2 are possible"));
  EXPECT_TRUE(says(error(taxels, two, npy_file("'|i1'", "(2,)", "\1\xFF")), "the value -1"));
  EXPECT_TRUE(
      says(error(npy_file("'<i2'", "(1, 1, 1)", bytes({0, 1})), two, two), "the value 256; pressures"));
  EXPECT_TRUE(says(error(taxels, two, two, 0), "recordings of 0 steps"));
}

TEST(Braille, ChangesBecomeEvents) {
  Recordings currents{.steps = 6, .units = 2, .classes = 1, .labels = {0}};
  currents.currents = {0, 0.5F, 0.3F, 0.5F, 0.3F, 0.5F, 0.05F, 0.45F, 0.05F, 0.35F, 0, 0.35F};
  const Recordings r = delta_coded(currents, 0.1);
  require_sound(r);
  EXPECT_EQ(r.units, 4u);
  // Unit 0: rises of the first feature, one in each step, until it is at 0.3; then falls.
  EXPECT_THAT(r.spikes(0), ElementsAre(SpikeEvent{1, 0}, SpikeEvent{2, 0}, SpikeEvent{3, 1}, SpikeEvent{4, 3},
                                       SpikeEvent{5, 1}));
  EXPECT_ERROR("by 0; it must be above 0", delta_coded(currents, 0));
}

TEST(Recordings, FoldersOfClassesAreRead) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, int x, int time) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    folder.write(name, npy_file("'<i4'", "(1, 4)",
                                little_endian(uint64_t(x), 4) + little_endian(0, 4) +
                                    little_endian(uint64_t(time), 4) + little_endian(1, 4)));
  };
  const std::string path = folder.path().string();
  EXPECT_ERROR("no folders of classes here", load_recordings("events", path));
  for (int i = 0; i < 10; ++i) write("left/" + std::to_string(i) + ".npy", i % 3, 10 * i);
  write("right/0.npy", 3, 99);
  const RecordingSplit split = load_recordings("events", path, {.steps = 10, .test = 0.25});
  EXPECT_EQ(split.train.units, 8u);
  EXPECT_EQ(split.train.classes, 2u);
  EXPECT_EQ(split.train.count(), 8u);
  EXPECT_EQ(split.test.count(), 3u);
  require_sound(split.train);
  std::vector<uint16_t> steps;
  for (const Recordings* part : {&split.train, &split.test})
    for (size_t i = 0; i < part->count(); ++i)
      if (part->labels[i] == 0) steps.push_back(part->spikes(i)[0].step);
  std::ranges::sort(steps);
  EXPECT_THAT(steps, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));

  const TemporaryFolder parted;
  const auto copy = [&](const std::string& part, const std::string& name) {
    std::filesystem::create_directories(parted.path() / part / name);
    std::filesystem::copy(folder.path() / name, parted.path() / part / name,
                          std::filesystem::copy_options::recursive);
  };
  copy("train", "left");
  copy("test", "left");
  EXPECT_EQ(load_recordings("events", parted.path().string()).test.count(), 10u);
  copy("test", "right");
  EXPECT_ERROR("right: a class that the training recordings lack",
               load_recordings("events", parted.path().string()));
}

TEST(Recordings, NMnistIsReadFromItsFolders) {
  const TemporaryFolder folder;
  for (const char* part : {"Train", "Test"})
    for (int digit = 0; digit < 10; ++digit) {
      const auto place = folder.path() / part / std::to_string(digit);
      std::filesystem::create_directories(place);
      folder.write(std::string(part) + "/" + std::to_string(digit) + "/00001.bin",
                   test::n_mnist_event(static_cast<uint8_t>(10 + digit), 17, 1, 150'000) +
                       test::n_mnist_event(0, 0, 0, 1) + test::n_mnist_event(20, 20, 0, 299'999) +
                       test::n_mnist_event(20, 20, 0, 300'000));
    }
  const RecordingSplit split = load_recordings("n-mnist", folder.path().string(), {.crop = 24});
  EXPECT_EQ(split.train.count(), 10u);
  EXPECT_EQ(split.train.units, 2u * 24 * 24);
  EXPECT_THAT(split.train.spikes(3),
              ElementsAre(SpikeEvent{50, 576 + 12 * 24 + 8}, SpikeEvent{99, 15 * 24 + 15}));
  EXPECT_EQ(split.outside, 40u);
  std::filesystem::remove_all(folder.path() / "Test/4");
  EXPECT_ERROR("Test/4: no such folder", load_recordings("n-mnist", folder.path().string()));
}

TEST(Recordings, GesturesArePartsOfFiles) {
  const TemporaryFolder folder;
  std::string events;
  for (uint32_t i = 0; i < 100; ++i) events += test::aedat_event(i, 64, i % 2, 1'000'000 + i * 100'000);
  folder.write("a.aedat", test::aedat_header() + test::aedat_packet(1, 8, 0, 100, events));
  folder.write("a_labels.csv", "class,startTime_usec,endTime_usec\n2,1000000,2000000\n11,4000000,12000000\n");
  folder.write("trials_to_train.txt", "a.aedat\r\n\n");
  folder.write("trials_to_test.txt", "a.aedat\n");
  const RecordingSplit split = load_recordings("dvs-gesture", folder.path().string(), {.steps = 60});
  EXPECT_EQ(split.train.units, 2u * 32 * 32);
  EXPECT_EQ(split.train.classes, 11u);
  EXPECT_THAT(split.train.labels, ElementsAre(1, 10));
  EXPECT_EQ(split.train.spikes(0).size(), 10u);
  EXPECT_EQ(split.train.spikes(0)[1], (SpikeEvent{1, 1024 + 16 * 32}));
  EXPECT_EQ(split.train.spikes(1).size(), 60u);  // of 70 in 6 s
  EXPECT_EQ(split.outside, 20u);
  EXPECT_EQ(split.test.count(), 2u);
  folder.write("trials_to_test.txt", "b.aedat\n");
  EXPECT_ERROR("b.aedat", load_recordings("dvs-gesture", folder.path().string()));
}

TEST(Recordings, MissingSetsSayWhatIsExpected) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& name, const RecordingSettings& s = {}) {
    return error_of([&] { load_recordings(name, folder.path().string(), s); });
  };
  EXPECT_TRUE(says(
      error("svhn"),
      "unknown set of recordings 'svhn' (choose from randman, mnist-latency, braille, braille-delta, shd"));
  EXPECT_TRUE(
      says(error("braille"), "no Braille recordings here; expected is taxels.npy, in it or in braille/"));
  EXPECT_TRUE(says(error("shd"), "no SHD here; expected is shd_train.h5, in it or in shd/"));
  EXPECT_TRUE(says(error("ssc"), "ssc_train.h5"));
  EXPECT_TRUE(says(error("n-mnist"), "expected is Train"));
  EXPECT_TRUE(says(error("dvs-gesture"), "trials_to_train.txt"));
  EXPECT_TRUE(says(error("mnist-latency"), "t10k-images-idx3-ubyte"));
  EXPECT_TRUE(says(error("randman", {.steps = 70'000}), "recordings of 70000 steps"));
  EXPECT_TRUE(says(error("randman", {.seconds = -1}), "a window of -1 s"));
  EXPECT_TRUE(says(error("randman", {.test = 1}), "a fraction of 1 for testing"));
}

TEST(Recordings, TheRealOnesAreRead) {
  const char* data = std::getenv("TESSERA_DATA");
  if (data == nullptr || !std::filesystem::exists(std::string(data) + "/braille"))
    GTEST_SKIP() << "TESSERA_DATA names no folder with braille/";
  const RecordingSplit split = load_recordings("braille", data);
  EXPECT_EQ(split.train.count(), 1080u);
  EXPECT_EQ(split.test.count(), 270u);
  EXPECT_EQ(split.train.classes, 27u);
  EXPECT_EQ(split.train.units, 12u);
  EXPECT_EQ(split.train.steps, 152u);
  const auto [least, most] = std::ranges::minmax(split.train.currents);
  EXPECT_GE(least, 0);
  EXPECT_LE(most, 1);
  const RecordingSplit delta = load_recordings("braille-delta", data);
  require_sound(delta.train);
  EXPECT_GT(delta.train.events.size(), delta.train.count() * 20);
}

TEST(RecordingBatches, SpikesBecomeLists) {
  Recordings r{.steps = 3, .units = 9, .classes = 4, .labels = {1, 2, 3}};
  r.events = {{0, 4}, {2, 1}, {2, 8}, {1, 0}};
  r.begin = {0, 3, 3, 4};
  EXPECT_EQ(most_spikes(r), 2u);
  RecordingBatch batch(r, 3, 2);
  const std::vector<uint32_t> which = {2, 0};
  for (int repetition = 0; repetition < 2; ++repetition) {
    batch.load(r, which);
    EXPECT_THAT(batch.labels(), ElementsAre(3, 1, 0));
    const SpikeLists lists = batch.spikes();
    EXPECT_EQ(lists.capacity, 2u);
    const auto row = [&](uint32_t t, uint32_t b) {
      const size_t at = size_t{t} * 3 + b;
      EXPECT_EQ(lists.num[2 * at], lists.num[2 * at + 1]);
      return std::vector<uint16_t>(lists.ids + at * 2, lists.ids + at * 2 + lists.num[2 * at]);
    };
    EXPECT_THAT(row(0, 0), ElementsAre());
    EXPECT_THAT(row(1, 0), ElementsAre(0));
    EXPECT_THAT(row(0, 1), ElementsAre(4));
    EXPECT_THAT(row(2, 1), ElementsAre(1, 8));
    EXPECT_THAT(row(2, 2), ElementsAre());
  }
  RecordingBatch narrow(r, 3, 1);
  EXPECT_ERROR("more than 1 spikes in step 2", narrow.load(r, which));
}

TEST(RecordingBatches, CurrentsAreDense) {
  Recordings r{.steps = 2, .units = 2, .classes = 1, .labels = {0, 0}};
  r.currents = {1, 2, 3, 4, 5, 6, 7, 8};
  RecordingBatch batch(r, 2, 1);
  const std::vector<uint32_t> which = {1, 0}, one = {0};
  batch.load(r, which);
  EXPECT_THAT(batch.currents(), ElementsAre(5, 6, 1, 2, 7, 8, 3, 4));
  batch.load(r, one);
  EXPECT_THAT(batch.currents(), ElementsAre(1, 2, 0, 0, 3, 4, 0, 0));
}

}  // namespace
}  // namespace tessera::train
