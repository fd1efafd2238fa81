#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace tessera::base {
namespace {

using Words = std::array<uint32_t, 4>;

// Random123's own known answers for philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, SeedStepOperationAndElementAllMatter) {
  std::set<uint32_t> words;
  for (uint64_t seed : {uint64_t{1}, uint64_t{1} << 32}) {
    for (uint32_t step : {0, 1}) {
      for (uint32_t operation : {0, 1}) {
        const RandomStream stream(seed, step, operation);
        for (uint64_t element : {uint64_t{0}, uint64_t{1}, uint64_t{4}, uint64_t{1} << 40}) {
          words.insert(stream.word(element));
        }
      }
    }
  }
  EXPECT_EQ(words.size(), 32u);
}

TEST(RandomStream, FillingEqualsDrawingOneByOneFromAnyElement) {
  const RandomStream stream(7, 3, 2);
  for (uint64_t first : {0, 1, 2, 3, 4, 1001}) {
    for (size_t count : {0, 1, 2, 3, 5, 64}) {
      std::vector<float> uniform(count), symmetric(count), normal(count);
      stream.fill_uniform(uniform, first);
      stream.fill_symmetric(symmetric, first);
      stream.fill_normal(normal, first);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(uniform[i], stream.uniform(first + i));
        EXPECT_EQ(symmetric[i], stream.symmetric(first + i));
        EXPECT_EQ(normal[i], stream.normal(first + i));
      }
    }
  }
}

struct Moments {
  double mean = 0, variance = 0, smallest = INFINITY, largest = -INFINITY;
};

Moments moments_of(const std::vector<float>& values) {
  Moments m;
  for (double x : values) {
    m.mean += x;
    m.variance += x * x;
    m.smallest = std::min(m.smallest, x);
    m.largest = std::max(m.largest, x);
  }
  m.mean /= static_cast<double>(values.size());
  m.variance = m.variance / static_cast<double>(values.size()) - m.mean * m.mean;
  return m;
}

constexpr size_t kMany = 1 << 20;
// Five standard deviations of a mean of kMany values of variance 1.
constexpr double kTolerance = 5.0 / 1024;

TEST(RandomStream, Uniform) {
  std::vector<float> values(kMany);
  RandomStream(1).fill_uniform(values);
  const Moments m = moments_of(values);
  EXPECT_NEAR(m.mean, 0.5, kTolerance * 0.29);
  EXPECT_NEAR(m.variance, 1.0 / 12, kTolerance * 0.08);
  EXPECT_GE(m.smallest, 0);
  EXPECT_LT(m.largest, 1);
}

TEST(RandomStream, SymmetricIsNeverZero) {
  std::vector<float> values(kMany);
  RandomStream(2).fill_symmetric(values);
  const Moments m = moments_of(values);
  EXPECT_NEAR(m.mean, 0, kTolerance * 0.58);
  EXPECT_NEAR(m.variance, 1.0 / 3, kTolerance * 0.3);
  EXPECT_GT(m.smallest, -1);
  EXPECT_LT(m.largest, 1);
  EXPECT_EQ(std::count(values.begin(), values.end(), 0.0F), 0);
}

TEST(RandomStream, Normal) {
  std::vector<float> values(kMany);
  RandomStream(3).fill_normal(values);
  const Moments m = moments_of(values);
  EXPECT_NEAR(m.mean, 0, kTolerance);
  EXPECT_NEAR(m.variance, 1, kTolerance * 1.5);
  EXPECT_LT(std::max(-m.smallest, m.largest), 6.8);
  // The distance of Kolmogorov and Smirnov to the normal distribution, at a level of about 1e-6.
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (size_t i = 0; i < kMany; ++i) {
    const double expected = 0.5 * std::erfc(-values[i] / std::sqrt(2.0));
    distance = std::max(distance, std::fabs(expected - (static_cast<double>(i) + 0.5) / kMany));
  }
  EXPECT_LT(distance, 2.7 / 1024);
}

// The formula of Box and Muller, with the C library's functions.
TEST(RandomStream, NormalAgreesWithTheLibraryFunctions) {
  const RandomStream stream(4);
  for (uint64_t block = 0; block < 10'000; ++block) {
    const Words words = stream.words(block);
    for (size_t i : {0, 2}) {
      const double radius = std::sqrt(-2 * std::log((words[i] + 0.5) * 0x1p-32));
      const double angle = 2 * M_PI * words[i + 1] * 0x1p-32;
      EXPECT_NEAR(stream.normal(4 * block + i), radius * std::cos(angle), 1e-6);
      EXPECT_NEAR(stream.normal(4 * block + i + 1), radius * std::sin(angle), 1e-6);
    }
  }
}

// The same on every platform.
TEST(RandomStream, KnownAnswers) {
  const RandomStream stream(42, 1, 2);
  EXPECT_EQ(stream.uniform(5), 0x1.4442cp-1F);
  EXPECT_EQ(stream.symmetric(5), 0x1.110b04p-2F);
  EXPECT_EQ(stream.normal(5), -0x1.bd035ap-1F);
}

TEST(RandomSequence, GivesTheWordsOfItsStreamInOrder) {
  const RandomStream stream(9);
  RandomSequence sequence(stream);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(sequence.word(), stream.word(i));
}

TEST(RandomSequence, BelowReachesEveryValue) {
  RandomSequence sequence(RandomStream(10));
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) ++counts[sequence.below(7)];
  for (int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

}  // namespace
}  // namespace tessera::base
