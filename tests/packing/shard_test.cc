// One plan for the shards of a corpus, and counts that add.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <cstdint>
#include <random>
#include <vector>

#include "packing/histograms.h"
#include "support/error_of.h"

namespace tessera::pack {
namespace {

/// Deals the sequences of a histogram out at random.
std::vector<Histogram> shards_of(const Histogram& all, size_t count, std::mt19937& random) {
  std::vector<Histogram> shards(count, Histogram::of_max_length(all.max_length()));
  std::uniform_int_distribution<size_t> any(0, count - 1);
  for (uint32_t length = 1; length <= all.max_length(); ++length)
    for (uint64_t i = 0; i < all.counts[length]; ++i) ++shards[any(random)].counts[length];
  return shards;
}

TEST(PlanShard, PacksEachShardByThePlanOfAll) {
  std::mt19937 random(4);
  for (const test::Shape shape : test::shapes)
    for (const uint32_t depth : {0U, 2U, 3U}) {
      const Histogram all = test::random_histogram(shape, 128, 20'000, random);
      const Packing whole = plan(all, {.max_per_pack = depth});
      uint64_t packs = 0;
      for (const Histogram& shard : shards_of(all, 3, random)) {
        const Packing packing = plan_shard(whole, shard);
        EXPECT_NO_THROW(verify(packing, shard)) << static_cast<int>(shape) << ", depth " << depth;
        EXPECT_NO_THROW(verify(packing.certificate));
        packs += packing.packs();
      }
      EXPECT_LE(static_cast<double>(packs), 1.02 * static_cast<double>(whole.packs()) + 3);
    }
}

TEST(PlanShard, TakesShardsThatThePlanDoesNotFit) {
  Histogram all = Histogram::of_max_length(10), other = all;
  all.counts[6] = all.counts[4] = 100;
  other.counts[9] = 7;
  EXPECT_EQ(plan_shard(plan(all), other).packs(), 7u);
  EXPECT_EQ(plan_shard(plan(all), Histogram::of_max_length(10)).packs(), 0u);
  EXPECT_EQ(plan_shard(plan(Histogram::of_max_length(10)), all).packs(), 100u);
  EXPECT_THROW(plan_shard(plan(all), Histogram::of_max_length(11)), UsageError);
}

TEST(CountedLengths, AreTheSameAsLengths) {
  const std::vector<uint32_t> lengths = {3, 12, 3, 25, 10};
  const std::vector<LengthCount> counted = {{25, 1}, {3, 1}, {12, 1}, {3, 1}, {10, 1}};
  for (const Overlong policy : {Overlong::drop, Overlong::truncate, Overlong::split}) {
    const Input one = count(Lengths(std::span<const uint32_t>(lengths)), 10, policy);
    const Input other = count(counted, 10, policy);
    EXPECT_EQ(one.histogram.counts, other.histogram.counts);
    EXPECT_EQ(one.lost_tokens, other.lost_tokens);
    EXPECT_EQ(one.overlong_sequences, other.overlong_sequences);
    EXPECT_EQ(one.sequences, other.sequences);
    EXPECT_EQ(one.tokens, other.tokens);
  }
  EXPECT_ERROR("a sequence of 25 tokens, and a pack holds 10", count(counted, 10));
  EXPECT_ERROR("2 sequences of 0 tokens", count(std::vector<LengthCount>{{0, 2}}, 10));
}

}  // namespace
}  // namespace tessera::pack
