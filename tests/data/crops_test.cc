// Parts of images: their contents, and that random parts follow from their keys.
#include "data/crops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "data/image_source.h"
#include "support/error_of.h"

namespace tessera::train {
namespace {

using ::testing::ElementsAre;

/// An image of 2 × 3 pixels in two channels.
ImageSet two_channels() { return {2, 2, 3, 10, {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}, {7}}; }

std::vector<uint8_t> taken(const Crop& crop) {
  std::vector<uint8_t> pixels(12, 99);
  copy_crop(two_channels(), 0, crop, pixels);
  return pixels;
}

TEST(Crops, AreChannelsLast) {
  EXPECT_THAT(taken({}), ElementsAre(1, 11, 2, 12, 3, 13, 4, 14, 5, 15, 6, 16));
}

TEST(Crops, AreFlippedBeforeTheyAreMoved) {
  EXPECT_THAT(taken({0, 0, true}), ElementsAre(3, 13, 2, 12, 1, 11, 6, 16, 5, 15, 4, 14));
  EXPECT_THAT(taken({0, 1, true}), ElementsAre(0, 0, 3, 13, 2, 12, 0, 0, 6, 16, 5, 15));
}

TEST(Crops, HaveZerosOutsideOfTheImage) {
  EXPECT_THAT(taken({1, -1}), ElementsAre(0, 0, 4, 14, 5, 15, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(taken({-2, 0}), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(Crops, FollowFromSeedEpochAndImage) {
  std::set<std::tuple<int32_t, int32_t, bool>> seen;
  double rows = 0, flipped = 0;
  constexpr uint32_t kCount = 4000;
  for (uint32_t image = 0; image < kCount; ++image) {
    const Crop crop = random_crop(5, 3, image, 4);
    EXPECT_EQ(crop, random_crop(5, 3, image, 4));
    EXPECT_LE(std::abs(crop.row), 4);
    EXPECT_LE(std::abs(crop.col), 4);
    seen.insert({crop.row, crop.col, crop.is_flipped});
    rows += crop.row;
    flipped += crop.is_flipped ? 1 : 0;
  }
  EXPECT_EQ(seen.size(), 9U * 9 * 2);
  EXPECT_NEAR(rows / kCount, 0, 5 * 2.6 / std::sqrt(kCount));
  EXPECT_NEAR(flipped / kCount, 0.5, 5 * 0.5 / std::sqrt(kCount));
  const auto others = [&](uint64_t seed, uint32_t epoch) {
    uint32_t different = 0;
    for (uint32_t image = 0; image < 100; ++image)
      different += random_crop(seed, epoch, image, 4) == random_crop(5, 3, image, 4) ? 0U : 1U;
    return different;
  };
  EXPECT_GT(others(6, 3), 90U);
  EXPECT_GT(others(5, 4), 90U);
}

TEST(Crops, ChannelsHaveStatisticsOfTheirOwn) {
  const ChannelStatistics found = channel_statistics(two_channels());
  EXPECT_THAT(found.mean, ElementsAre(3.5, 13.5));
  EXPECT_NEAR(found.deviation[0], std::sqrt(35.0 / 12), 1e-9);
  EXPECT_NEAR(found.deviation[1], std::sqrt(35.0 / 12), 1e-9);
  EXPECT_THAT(channel_statistics({1, 1, 2, 10, {5, 5}, {0}}).deviation, ElementsAre(1));
}

TEST(ImageSources, TakeRandomPartsForTrainingAlone) {
  const ImageSplit split = synthetic_images(20, 10, 1, {8, 8, 10});
  const ImageSources sources = stored_images(split, 3, 4);
  EXPECT_EQ(sources.format.image_size(), 64U);
  EXPECT_EQ(sources.training->label(7), split.train.labels[7]);
  const auto read = [&](const ImageSource& source, std::optional<uint32_t> epoch) {
    std::vector<uint8_t> all(20 * 64);
    for (size_t i = 0; i < source.count(); ++i) source.read(i, epoch, std::span(all).subspan(i * 64, 64));
    return all;
  };
  EXPECT_EQ(read(*sources.training, {}), split.train.pixels);
  EXPECT_NE(read(*sources.training, 0), split.train.pixels);
  EXPECT_EQ(read(*sources.training, 1), read(*sources.training, 1));
  EXPECT_NE(read(*sources.training, 1), read(*sources.training, 0));
  const ImageSources still = stored_images(split, 3, {});
  EXPECT_EQ(read(*still.training, 1), split.train.pixels);
  ImageSplit other = split;
  other.test.width = 4;
  EXPECT_USAGE_ERROR("test images are 8 × 4", stored_images(other, 3, 4));
}

}  // namespace
}  // namespace tessera::train
