// Packing a stream: bounded memory, every sequence once, and packs as good as the window allows.
#include <gtest/gtest.h>
#include <tessera/packing.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"
#include "support/error_of.h"

namespace tessera::pack {
namespace {

struct Packed {
  std::vector<std::vector<Entry>> packs;
  uint64_t most_waiting = 0;  ///< sequences that were pushed and not yet in a pack
};

Packed pack(const std::vector<uint64_t>& lengths, const StreamOptions& options) {
  StreamPacker packer(options);
  Packed out;
  uint64_t done = 0;
  const auto take = [&] {
    for (auto pack = packer.next(); !pack.empty(); pack = packer.next()) {
      out.packs.emplace_back(pack.begin(), pack.end());
      done += pack.size();
    }
  };
  for (size_t i = 0; i < lengths.size(); ++i) {
    packer.push(lengths[i]);
    take();
    out.most_waiting = std::max(out.most_waiting, i + 1 > done ? i + 1 - done : 0);
  }
  packer.finish();
  take();
  EXPECT_EQ(packer.seen().sequences, lengths.size());
  return out;
}

std::vector<uint64_t> random_lengths(uint64_t seed, size_t size, uint32_t longest) {
  base::RandomSequence random{base::RandomStream(seed)};
  std::vector<uint64_t> lengths(size);
  for (uint64_t& length : lengths) length = 1 + random.below(longest);
  return lengths;
}

void expect_sound(const Packed& packed, const std::vector<uint64_t>& lengths, const StreamOptions& options) {
  std::map<uint64_t, std::map<uint64_t, uint64_t>> pieces;
  for (const auto& entries : packed.packs) {
    ASSERT_LE(entries.size(), options.max_per_pack == 0 ? UINT32_MAX : options.max_per_pack);
    uint64_t used = 0;
    for (const Entry& entry : entries) {
      ASSERT_EQ(entry.start, used);
      used += entry.length;
      ASSERT_TRUE(pieces[entry.sequence].emplace(entry.begin, entry.length).second);
    }
    ASSERT_LE(used, options.max_length);
  }
  for (uint64_t s = 0; s < lengths.size(); ++s) {
    const bool too_long = lengths[s] > options.max_length;
    if (too_long && options.overlong == Overlong::drop) {
      ASSERT_EQ(pieces.count(s), 0u);
      continue;
    }
    uint64_t at = 0;
    for (const auto& [begin, length] : pieces[s]) {
      ASSERT_EQ(begin, at);
      at += length;
    }
    ASSERT_EQ(at, too_long && options.overlong == Overlong::truncate ? options.max_length : lengths[s]);
  }
}

TEST(StreamPacker, PutsEverySequenceInOnePack) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<uint64_t> lengths = random_lengths(seed, 2000, 100);
    StreamOptions options;
    options.max_length = seed % 2 == 0 ? 100 : 40;
    options.window = std::array{1U, 2U, 3U, 10U, 500U, 5000U}[seed % 6];
    options.max_per_pack = std::array{0U, 1U, 2U, 4U}[seed / 2 % 4];
    options.overlong = std::array{Overlong::drop, Overlong::truncate, Overlong::split}[seed % 3];
    const Packed packed = pack(lengths, options);
    expect_sound(packed, lengths, options);
    const bool cut = options.max_length < 100;  // dropped ones never come out, and pieces are more
    EXPECT_LE(cut ? 0 : packed.most_waiting, options.window);
    EXPECT_EQ(packed.packs, pack(lengths, options).packs);
  }
}

// 384 tokens, lengths of 40 to 384 (mean 212): chunks of the window packed best-fit decreasing, as
// trainers do it, measured on the same stream.
uint64_t packs_of_chunks(const std::vector<uint64_t>& lengths, uint32_t max_length, size_t window) {
  uint64_t packs = 0;
  for (size_t first = 0; first < lengths.size(); first += window) {
    Histogram histogram = Histogram::of_max_length(max_length);
    for (size_t i = first; i < std::min(first + window, lengths.size()); ++i) ++histogram.counts[lengths[i]];
    packs += plan(histogram, {.algorithm = Algorithm::lpfhp}).packs();
  }
  return packs;
}

TEST(StreamPacker, BeatsChunksOfItsWindow) {
  for (const uint32_t longest : {384U, 200U}) {
    std::vector<uint64_t> lengths = random_lengths(7, 50'000, longest - 39);
    for (uint64_t& length : lengths) length += 39;
    for (const uint32_t window : {100U, 1000U, 10'000U}) {
      const size_t packs = pack(lengths, {.max_length = 384, .window = window}).packs.size();
      EXPECT_LE(packs, packs_of_chunks(lengths, 384, window)) << longest << ", window " << window;
    }
  }
}

TEST(StreamPacker, SplitsAGiantWithoutHoldingItsPieces) {
  StreamPacker packer({.max_length = 1000, .window = 10, .overlong = Overlong::split});
  packer.push(uint64_t{1} << 60);
  uint64_t at = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto pack = packer.next();
    ASSERT_EQ(pack.size(), 1u);
    ASSERT_EQ(pack[0], (Entry{0, at, 1000, 0}));
    at += 1000;
  }
}

TEST(StreamPacker, SaysWhatIsWrong) {
  EXPECT_USAGE_ERROR("a pack may have 1 to", StreamPacker({.max_length = 0}));
  EXPECT_USAGE_ERROR("a window of 0", StreamPacker({.max_length = 5, .window = 0}));
  StreamPacker packer({.max_length = 5, .window = 2});
  packer.push(5);
  EXPECT_ERROR("sequence 1: a sequence has 1 token at least", packer.push(0));
  StreamPacker strict({.max_length = 5, .window = 2});
  EXPECT_ERROR("sequence 0: a sequence of 6 tokens, and a pack holds 5", strict.push(6));
  StreamPacker full({.max_length = 5, .window = 2});
  full.push(1);
  full.push(1);
  EXPECT_USAGE_ERROR("the window is full", full.push(1));
}

}  // namespace
}  // namespace tessera::pack
