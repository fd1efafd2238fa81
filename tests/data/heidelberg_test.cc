// Recordings in HDF5.
#include "data/events/heidelberg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/recordings.h>

#include <limits>
#include <string>

#include "base/random.h"
#include "io/files.h"
#include "support/error_of.h"
#include "support/heidelberg_file.h"

namespace tessera::train {
namespace {

using test::error_of;
using test::says;
using ::testing::ElementsAre;

#ifdef TESSERA_HDF5

using test::heidelberg_file;
using test::HeidelbergFile;

const HeidelbergFile kFile = {.times = {{0.5F, 0.25F, 0.75F, 1.0F}, {}, {0.125F}},
                              .units = {{699, 1, 2, 3}, {}, {5}},
                              .labels = {19, 0, 3}};

std::string error_in(const HeidelbergFile& content) {
  const std::string image = heidelberg_file(content);
  return error_of([&] {
    Recordings to{.steps = 4, .units = 700, .classes = 20};
    Binning binning(to, 1);
    read_heidelberg(io::Hdf5File("w", std::as_bytes(std::span(image))), to, binning);
  });
}

TEST(Heidelberg, ListsOfTimesAndUnitsAreRead) {
  for (const bool half : {false, true}) {
    HeidelbergFile content = kFile;
    content.half_times = half;
    const std::string image = heidelberg_file(content);
    Recordings to{.steps = 4, .units = 700, .classes = 20};
    Binning binning(to, 1);
    read_heidelberg(io::Hdf5File("w", std::as_bytes(std::span(image))), to, binning);
    EXPECT_THAT(to.labels, ElementsAre(19, 0, 3));
    EXPECT_THAT(to.spikes(0), ElementsAre(SpikeEvent{1, 1}, SpikeEvent{2, 699}, SpikeEvent{3, 2}));
    EXPECT_TRUE(to.spikes(1).empty());
    EXPECT_THAT(to.spikes(2), ElementsAre(SpikeEvent{0, 5}));
    EXPECT_EQ(binning.outside(), 1u);  // at the end of the window
  }
}

TEST(Heidelberg, MoreThanAFewRecordingsAreRead) {
  HeidelbergFile content;
  for (uint16_t i = 0; i < 150; ++i) {
    content.times.push_back({static_cast<float>(i % 4) / 4});
    content.units.push_back({i});
    content.labels.push_back(i % 20);
  }
  const test::TemporaryFolder folder;
  const auto file = io::Hdf5File::open(folder.write("shd_train.h5", heidelberg_file(content)));
  Recordings to{.steps = 4, .units = 700, .classes = 20};
  Binning binning(to, 1);
  read_heidelberg(file, to, binning);
  ASSERT_EQ(to.count(), 150u);
  for (uint16_t i = 0; i < 150; ++i)
    EXPECT_THAT(to.spikes(i), ElementsAre(SpikeEvent{static_cast<uint16_t>(i % 4), i}));
}

TEST(Heidelberg, SetsAreLoadedByName) {
  const test::TemporaryFolder folder;
  folder.write("shd_train.h5", heidelberg_file(kFile));
  EXPECT_ERROR("shd_test.h5", load_recordings("shd", folder.path().string()));
  folder.write("shd_test.h5", heidelberg_file(kFile));
  const RecordingSplit split = load_recordings("shd", folder.path().string());
  EXPECT_EQ(split.name, "SHD");
  EXPECT_EQ(split.train.steps, 100u);
  EXPECT_EQ(split.train.units, 700u);
  EXPECT_EQ(split.train.classes, 20u);
  EXPECT_EQ(split.test.count(), 3u);
  EXPECT_EQ(split.outside, 0u);
  EXPECT_THAT(split.test.spikes(2), ElementsAre(SpikeEvent{8, 5}));  // 0.125 s of 1.4 s
}

TEST(Heidelberg, WhatDoesNotFitTogetherIsRefused) {
  HeidelbergFile content = kFile;
  content.labels = {20, 0, 3};
  EXPECT_TRUE(says(error_in(content), "w: recording 0 has the label 20; classes are 0 to 19"));
  content = kFile;
  content.labels = {1, 2};
  EXPECT_TRUE(says(error_in(content), "3 lists in spikes/times and 2 labels"));
  content = kFile;
  content.units[2] = {700};
  EXPECT_TRUE(says(error_in(content), "recording 2 has unit 700; they are below 700"));
  content = kFile;
  content.units[2] = {7, 8};
  EXPECT_TRUE(says(error_in(content), "recording 2 has 1 times and 2 units"));
  content = kFile;
  content.times[2] = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(says(error_in(content), "recording 2 has a spike at time nan"));
}

// Files with any content. (The library itself reads damaged files at its user's risk.)
TEST(Heidelberg, AnyContentIsReadOrRefused) {
  constexpr float kTimes[] = {0, 0.5F, 0.999F, 1, -0.25F, 1e30F, std::numeric_limits<float>::infinity()};
  uint32_t accepted = 0, refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    base::RandomSequence random{base::RandomStream(seed)};
    const auto rarely = [&] { return random.below(40) == 0; };
    HeidelbergFile content;
    for (uint32_t i = random.below(6); i-- > 0;) {
      const uint32_t spikes = random.below(5);
      auto& times = content.times.emplace_back(spikes);
      for (float& time : times) time = kTimes[random.below(rarely() ? 7 : 6)];
      auto& units = content.units.emplace_back(spikes + (rarely() ? 1 : 0));
      for (uint16_t& unit : units) unit = static_cast<uint16_t>(random.below(rarely() ? 65'536 : 700));
      content.labels.push_back(static_cast<uint16_t>(random.below(rarely() ? 65'536 : 20)));
    }
    const std::string image = heidelberg_file(content);
    Recordings to{.steps = 10, .units = kHeidelbergUnits, .classes = 20};
    Binning binning(to, 1);
    try {
      read_heidelberg(io::Hdf5File("w", std::as_bytes(std::span(image))), to, binning);
      ++accepted;
    } catch (const Error&) {
      ++refused;
      continue;
    }
    ASSERT_EQ(to.count(), content.labels.size());
    for (size_t i = 0; i < to.count(); ++i) {
      ASSERT_LT(to.labels[i], 20u);
      ASSERT_LE(to.spikes(i).size(), content.times[i].size());
      for (const SpikeEvent& event : to.spikes(i)) ASSERT_TRUE(event.step < 10 && event.unit < 700);
    }
  }
  EXPECT_GT(accepted, 50u);
  EXPECT_GT(refused, 20u);
}

TEST(Hdf5, OtherFilesAreRefused) {
  const test::TemporaryFolder folder;
  const std::string text = folder.write("a.h5", "text");
  EXPECT_ERROR("a.h5: cannot open it as an HDF5 file", io::Hdf5File::open(text));
  EXPECT_ERROR("none.h5: cannot open it", io::Hdf5File::open(folder.file("none.h5")));
  const auto file = io::Hdf5File::open(folder.write("b.h5", heidelberg_file(kFile)));
  EXPECT_ERROR("no data set spikes/ids in this file", file.size("spikes/ids"));
  EXPECT_ERROR("spikes/units is not of numbers", file.numbers("spikes/units", 9));
  EXPECT_ERROR("3 numbers in the data set labels; at most 2", file.numbers("labels", 2));
  EXPECT_ERROR("labels is not of lists", file.each_list("labels", [](uint64_t, std::span<const double>) {}));
}

#else

TEST(Heidelberg, WithoutTheLibraryThereIsAMessage) {
  const test::TemporaryFolder folder;
  folder.write("shd_train.h5", "");
  EXPECT_ERROR("libhdf5-dev", load_recordings("shd", folder.path().string()));
}

#endif

}  // namespace
}  // namespace tessera::train
