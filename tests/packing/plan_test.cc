// Every algorithm on every kind of histogram: the invariants of a packing hold.
#include <gtest/gtest.h>
#include <tessera/packing.h>

#include <algorithm>
#include <cmath>

#include "packing/histograms.h"
#include "support/error_of.h"

namespace tessera::pack {
namespace {

using tessera::test::error_of;
using tessera::test::says;

constexpr uint32_t kDepths[] = {0, 1, 2, 3, 5, 8};

Packing planned(const Histogram& histogram, Algorithm algorithm, uint32_t max_per_pack,
                bool certify = false) {
  return plan(histogram, {.algorithm = algorithm, .max_per_pack = max_per_pack, .certify = certify});
}

bool takes(Algorithm algorithm, uint32_t max_per_pack) {
  return algorithm != Algorithm::nnlshp || max_per_pack == 0 || max_per_pack == 3;
}

void expect_sound(const Packing& packing, const Histogram& histogram) {
  SCOPED_TRACE(std::string(name_of(packing.algorithm)));
  SCOPED_TRACE(packing.max_per_pack);
  EXPECT_NO_THROW(verify(packing, histogram));
  EXPECT_NO_THROW(verify(packing.certificate));
  EXPECT_EQ(packing.certificate.histogram.counts, histogram.counts);
  EXPECT_GE(packing.packs(), packing.lower_bound());
  EXPECT_EQ(packing.packs() * packing.max_length, packing.tokens + packing.padding());
  EXPECT_FALSE(packing.cut_short);
  uint64_t packs = 0;
  uint64_t sequences = 0;
  const std::vector<uint64_t> depths = packing.depths();
  for (size_t d = 0; d < depths.size(); ++d) {
    packs += depths[d];
    sequences += depths[d] * d;
  }
  EXPECT_EQ(packs, packing.packs());
  EXPECT_EQ(sequences, histogram.sequences());
}

TEST(Plan, PacksEverySequenceOnceWithinLengthAndDepth) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const uint32_t max_length = std::uniform_int_distribution<uint32_t>(1, 160)(random);
    for (const test::Shape shape : test::shapes) {
      SCOPED_TRACE(static_cast<int>(shape));
      const Histogram histogram = test::random_histogram(shape, max_length, 20U << seed % 6, random);
      for (const uint32_t depth : kDepths)
        for (const Algorithm algorithm : algorithms)
          if (takes(algorithm, depth)) expect_sound(planned(histogram, algorithm, depth), histogram);
    }
  }
}

TEST(Plan, BestIsNeverWorseThanTheOthers) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    for (const test::Shape shape : test::shapes) {
      SCOPED_TRACE(static_cast<int>(shape));
      const Histogram histogram = test::random_histogram(shape, 200, 3000, random);
      for (const uint32_t depth : kDepths) {
        SCOPED_TRACE(depth);
        const Packing best = planned(histogram, Algorithm::best, depth);
        EXPECT_LE(best.gap(), 1U);
        for (const Algorithm algorithm : algorithms) {
          if (!takes(algorithm, depth)) continue;
          EXPECT_LE(best.packs(), planned(histogram, algorithm, depth).packs());
        }
      }
    }
  }
}

TEST(Plan, MaximaTooLongForTablesArePackedOnACoarserScale) {
  std::mt19937 random(13);
  Histogram histogram = Histogram::of_max_length(30000);
  std::lognormal_distribution<double> length(std::log(700.0), 1.8);
  for (int i = 0; i < 30000; ++i)
    ++histogram.counts[static_cast<size_t>(std::clamp(length(random), 1.0, 30000.0))];
  const Packing best = planned(histogram, Algorithm::best, 3);
  expect_sound(best, histogram);
  const Packing greedy = planned(histogram, Algorithm::lpfhp, 3);
  EXPECT_LT(best.packs(), greedy.packs());
  EXPECT_GE(best.lower_bound(), greedy.lower_bound());
}

TEST(Plan, CertifyingAGreedyPackingGivesTheBoundOfTheBest) {
  std::mt19937 random(7);
  const Histogram histogram = test::random_histogram(test::Shape::above_third, 300, 2000, random);
  const Packing best = planned(histogram, Algorithm::best, 3);
  const Packing greedy = planned(histogram, Algorithm::lpfhp, 3, /*certify=*/true);
  expect_sound(greedy, histogram);
  EXPECT_EQ(greedy.lower_bound(), best.lower_bound());
  EXPECT_GT(greedy.lower_bound(), planned(histogram, Algorithm::lpfhp, 3).lower_bound());
}

TEST(Plan, ASeedDecidesThePacking) {
  std::mt19937 random(11);
  const Histogram histogram = test::random_histogram(test::Shape::uniform, 400, 5000, random);
  for (const uint64_t seed : {0, 1, 2}) {
    const Options options{.max_per_pack = 4, .seed = seed};
    EXPECT_EQ(plan(histogram, options).strategies, plan(histogram, options).strategies) << seed;
  }
}

TEST(Plan, CountsOf64BitsArePackedLikeSmallOnes) {
  Histogram histogram = Histogram::of_max_length(10);
  const uint64_t many = uint64_t{1} << 57;
  histogram.counts[7] = many;
  histogram.counts[3] = many;
  histogram.counts[5] = 3;
  for (const Algorithm algorithm : algorithms) {
    const Packing packing = planned(histogram, algorithm, 0);
    expect_sound(packing, histogram);
    if (algorithm == Algorithm::best) {
      EXPECT_EQ(packing.packs(), many + 2);
    }
  }
}

TEST(Plan, NoSequencesNeedNoPacks) {
  const Histogram histogram = Histogram::of_max_length(512);
  for (const Algorithm algorithm : algorithms) {
    const Packing packing = planned(histogram, algorithm, 0);
    expect_sound(packing, histogram);
    EXPECT_EQ(packing.packs(), 0U);
    EXPECT_TRUE(packing.optimal());
    EXPECT_EQ(packing.efficiency(), 1);
  }
}

TEST(Plan, OneSequenceOfTheMaximumIsOnePack) {
  Histogram histogram = Histogram::of_max_length(1);
  histogram.counts[1] = 1;
  for (const Algorithm algorithm : algorithms) {
    const Packing packing = planned(histogram, algorithm, 0);
    expect_sound(packing, histogram);
    EXPECT_EQ(packing.packs(), 1U);
  }
}

TEST(Plan, ATimeLimitReturnsTheBestSoFarAndSaysSo) {
  std::mt19937 random(3);
  const Histogram histogram = test::random_histogram(test::Shape::uniform, 2000, 100000, random);
  const Packing packing = plan(histogram, {.max_per_pack = 3, .time_limit = 0.02});
  EXPECT_NO_THROW(verify(packing, histogram));
  EXPECT_NO_THROW(verify(packing.certificate));
  EXPECT_TRUE(packing.cut_short);
  EXPECT_LE(packing.packs(), planned(histogram, Algorithm::lpfhp, 3).packs());
}

TEST(Plan, ACallerCanEndIt) {
  std::mt19937 random(3);
  const Histogram histogram = test::random_histogram(test::Shape::uniform, 2000, 100000, random);
  Progress last;
  const auto poll = [&](const Progress& progress) {
    last = progress;
    return false;
  };
  const Packing packing = plan(histogram, {.max_per_pack = 3, .poll = poll});
  EXPECT_TRUE(packing.cut_short);
  EXPECT_NO_THROW(verify(packing, histogram));
}

TEST(Plan, RefusesWhatItCannotPack) {
  Histogram histogram = Histogram::of_max_length(8);
  histogram.counts[0] = 4;
  EXPECT_USAGE_ERROR("4 sequences have length 0", plan(histogram));
  EXPECT_USAGE_ERROR("1 to 268435456 tokens, not 0", plan(Histogram{}));
  histogram.counts = {0, 0, uint64_t{1} << 63, uint64_t{1} << 63};
  EXPECT_USAGE_ERROR("2^63 tokens or more", plan(histogram));
  histogram.counts = {0, 1};
  EXPECT_USAGE_ERROR("at most 3 sequences in a pack, not 4", planned(histogram, Algorithm::nnlshp, 4));
  EXPECT_USAGE_ERROR("not -1", plan(histogram, {.time_limit = -1}));
  EXPECT_USAGE_ERROR("best, spfhp, lpfhp, nnlshp, ffd, next-fit", algorithm_named("worst"));
}

TEST(Plan, AlgorithmsAreFoundByTheirNames) {
  for (const Algorithm algorithm : algorithms) EXPECT_EQ(algorithm_named(name_of(algorithm)), algorithm);
}

TEST(VerifyPacking, FindsWhatIsWrong) {
  Histogram histogram = Histogram::of_max_length(10);
  histogram.counts[6] = 2;
  histogram.counts[4] = 1;
  const Packing good = planned(histogram, Algorithm::best, 2);
  const auto error_with = [&](std::vector<Strategy> strategies) {
    Packing bad = good;
    bad.strategies = std::move(strategies);
    return error_of([&] { verify(bad, histogram); });
  };
  EXPECT_EQ(error_with(good.strategies), "(no error)");
  EXPECT_TRUE(says(error_with({{{{6, 2}}, 1}, {{{4, 1}}, 1}}), "12 tokens"));
  EXPECT_TRUE(says(error_with({{{{6, 1}}, 2}}), "of 1 sequences of length 4, 0 are packed"));
  EXPECT_TRUE(says(error_with({{{{4, 1}, {6, 1}}, 1}, {{{6, 1}}, 1}}), "after length"));
  Packing deep = good;
  deep.max_per_pack = 1;
  EXPECT_ERROR("2 sequences, more than", verify(deep, histogram));
}

}  // namespace
}  // namespace tessera::pack
