// Training inputs from packs.
#include <gtest/gtest.h>
#include <tessera/packing.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "support/error_of.h"

namespace tessera::pack {
namespace {

TEST(Batch, CuSeqlensArePrefixSums) {
  EXPECT_EQ(cu_seqlens({}), (std::vector<int32_t>{0}));
  EXPECT_EQ(cu_seqlens(std::vector<uint32_t>{3, 1, 4}), (std::vector<int32_t>{0, 3, 4, 8}));
  const std::vector<uint32_t> full = {1U << 30, (1U << 30) - 1};
  EXPECT_EQ(cu_seqlens(full).back(), INT32_MAX);
  const std::vector<uint32_t> more = {1U << 30, 1U << 30};
  EXPECT_ERROR("2147483648 or more tokens", cu_seqlens(more));
}

TEST(Batch, PositionsRestartAtTheOffset) {
  std::vector<int32_t> out(8, -1);
  position_ids(std::vector<uint32_t>{3, 2}, out, 2, 1);
  EXPECT_EQ(out, (std::vector<int32_t>{2, 3, 4, 2, 3, 1, 1, 1}));
  sequence_ids(std::vector<uint32_t>{3, 2}, out);
  EXPECT_EQ(out, (std::vector<int32_t>{1, 1, 1, 2, 2, 0, 0, 0}));
  EXPECT_USAGE_ERROR("in a pack of 8", position_ids(std::vector<uint32_t>{5, 4}, out));
  EXPECT_ERROR("exceed", position_ids(std::vector<uint32_t>{3}, out, INT32_MAX - 1));
}

TEST(Batch, LengthsOfEntriesAreThoseOfTheirPieces) {
  const std::vector<uint32_t> values = {7, 25, 3, 10};
  const Lengths lengths{std::span<const uint32_t>(values)};
  for (const Overlong policy : {Overlong::split, Overlong::truncate, Overlong::drop}) {
    const Input input = count(lengths, 10, policy);
    const PackIndex index = index_packs(plan(input.histogram), input, lengths);
    const uint64_t packs = index.offsets.size() - 1;
    uint64_t tokens = 0;
    for (uint64_t p = 0; p < packs; ++p) {
      const std::vector<uint32_t> in_pack = entry_lengths(index, lengths, p);
      for (size_t i = 0; i + 1 < in_pack.size(); ++i)
        EXPECT_EQ(index.start[index.offsets[p] + i] + in_pack[i], index.start[index.offsets[p] + i + 1]);
      tokens += std::accumulate(in_pack.begin(), in_pack.end(), uint64_t{0});
    }
    EXPECT_EQ(tokens, input.histogram.tokens());
    EXPECT_EQ(entry_lengths(index, lengths, 0, packs).size(), index.sequence.size());
    EXPECT_USAGE_ERROR("packs 0 to", entry_lengths(index, lengths, 0, packs + 1));
  }
}

TEST(Ranks, GetEqualNumbersAndEvenWork) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    base::RandomSequence random{base::RandomStream(seed)};
    std::vector<uint64_t> costs(1000 + random.below(100));
    for (uint64_t& cost : costs) cost = 1 + random.below(1000);
    const uint32_t ranks = 1 + random.below(16);
    const std::vector<uint32_t> rank_of = assign_to_ranks(costs, ranks);
    std::vector<uint64_t> sums(ranks);
    std::vector<size_t> packs(ranks);
    for (size_t i = 0; i < costs.size(); ++i) {
      ASSERT_LT(rank_of[i], ranks);
      sums[rank_of[i]] += costs[i];
      ++packs[rank_of[i]];
    }
    const auto [fewest, most] = std::minmax_element(packs.begin(), packs.end());
    EXPECT_LE(*most - *fewest, 1u) << seed;
    // A rank can lead by at most one pack, because the others got a more expensive one before.
    const auto [least, largest] = std::minmax_element(sums.begin(), sums.end());
    EXPECT_LE(*largest - *least, 1000u) << seed;
  }
  EXPECT_USAGE_ERROR("1 rank", assign_to_ranks({}, 0));
}

TEST(Ranks, InABalancedOrderHardlyWait) {
  base::RandomSequence random{base::RandomStream(1)};
  Histogram histogram = Histogram::of_max_length(512);
  for (int i = 0; i < 100'000; ++i) ++histogram.counts[1 + random.below(512)];
  const Packing packing = plan(histogram, {.algorithm = Algorithm::lpfhp});
  const RankBalance shuffled = rank_balance(packing, {.shuffle = 1}, 8);
  const RankBalance balanced = rank_balance(packing, {.shuffle = 1, .ranks = 8}, 8);
  EXPECT_GT(shuffled.idle, 0.1);
  EXPECT_LT(balanced.idle, 0.005);
  EXPECT_LT(balanced.spread, 0.005);
  EXPECT_EQ(rank_balance(packing, {}, 1).spread, 0);
  EXPECT_EQ(rank_balance(packing, {}, 1).idle, 0);
}

}  // namespace
}  // namespace tessera::pack
