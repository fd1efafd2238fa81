// Images as numbers: grey, division, standardisation, shuffling.
#include "data/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::train {
namespace {

using ::testing::ElementsAre;

/// Two images of 1 × 2 pixels in three channels.
ImageSet coloured() { return {3, 1, 2, 10, {1, 2, 10, 20, 100, 200, 255, 0, 255, 0, 255, 1}, {4, 7}}; }

std::vector<uint32_t> first(size_t count) {
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

TEST(Samples, GreyIsTheMeanOfTheChannels) {
  const Samples grey = samples_of(coloured(), true);
  EXPECT_EQ(grey.features, 2u);
  EXPECT_THAT(grey.values, ElementsAre(111, 222, 765, 1));  // times three
  EXPECT_THAT(grey.labels, ElementsAre(4, 7));
  const Samples colour = samples_of(coloured(), false);
  EXPECT_EQ(colour.features, 6u);
  EXPECT_THAT(colour.image(1), ElementsAre(255, 0, 255, 0, 255, 1));
}

TEST(Samples, DivisionIsRandomAndFollowsFromTheSeed) {
  const Division division = divide(1000, 0.15, 3);
  EXPECT_EQ(division.validation.size(), 150u);
  EXPECT_EQ(division.training.size(), 850u);
  std::vector<uint32_t> all = division.training;
  all.insert(all.end(), division.validation.begin(), division.validation.end());
  std::ranges::sort(all);
  EXPECT_EQ(all, first(1000));
  EXPECT_EQ(divide(1000, 0.15, 3).validation, division.validation);
  EXPECT_NE(divide(1000, 0.15, 4).validation, division.validation);
  const double mean = std::accumulate(division.validation.begin(), division.validation.end(), 0.0) / 150;
  EXPECT_NEAR(mean, 499.5, 5 * 288.7 / std::sqrt(150));
}

TEST(Samples, EpochsHaveTheirOwnOrders) {
  const std::vector<uint32_t> all = first(500);
  const std::vector<uint32_t> one = shuffled(all, 1, 0);
  EXPECT_EQ(shuffled(all, 1, 0), one);
  EXPECT_NE(shuffled(all, 1, 1), one);
  EXPECT_NE(shuffled(all, 2, 0), one);
  std::vector<uint32_t> sorted = one;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, all);
  size_t in_place = 0;
  for (size_t i = 0; i < one.size(); ++i) in_place += one[i] == i ? 1 : 0;
  EXPECT_LT(in_place, 10u);  // one is expected
}

TEST(Samples, FeaturesAreStandardised) {
  Samples samples{3, 2, {}, {}};
  for (uint16_t i = 0; i < 40; ++i) {
    samples.values.insert(samples.values.end(), {i, static_cast<uint16_t>(i % 2 == 0 ? 10 : 765), 7});
    samples.labels.push_back(0);
  }
  const std::vector<uint32_t> trained = first(30);
  const Standardisation standardisation(samples, trained);
  std::vector<float> rows(40 * 3);
  standardisation.apply(samples, first(40), rows.data());
  for (size_t f = 0; f < 3; ++f) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < 30; ++i) {
      sum += rows[i * 3 + f];
      squares += double{rows[i * 3 + f]} * rows[i * 3 + f];
    }
    EXPECT_NEAR(sum / 30, 0, 1e-6) << f;
    EXPECT_NEAR(squares / 30, f == 2 ? 0 : 1, 1e-5) << f;  // one feature does not vary
  }
  EXPECT_FLOAT_EQ(rows[35 * 3], (35 - 14.5F) / std::sqrt((30 * 30 - 1) / 12.0F));
}

TEST(Samples, OneDifferentImageOfManyCounts) {
  Samples samples{1, 2, std::vector<uint16_t>(40'000, 765), std::vector<uint8_t>(40'000)};
  samples.values[5] = 764;
  std::vector<float> row(1);
  const Standardisation standardisation(samples, first(40'000));
  standardisation.apply(samples, std::vector<uint32_t>{5}, row.data());
  EXPECT_NEAR(row[0], -200, 0.1);
}

}  // namespace
}  // namespace tessera::train
