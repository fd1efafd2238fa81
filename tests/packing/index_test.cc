// Index arrays and folders of packs: every token of the input is in exactly one place.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <tessera/packing.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/random.h"
#include "io/files.h"
#include "packing/npy_text.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::pack {
namespace {

using test::content_of;
using test::npy_values;

std::vector<uint32_t> random_lengths(uint64_t seed, size_t most, uint32_t longest) {
  base::RandomSequence random{base::RandomStream(seed)};
  std::vector<uint32_t> lengths(random.below(static_cast<uint32_t>(most)) + 1);
  const uint32_t few = random.below(4) == 0 ? 3 : longest;  // now and then only a few different lengths
  for (uint32_t& length : lengths) length = longest - random.below(few);
  return lengths;
}

/// An index in plain vectors.
struct Plain {
  std::vector<uint64_t> offsets, sequence, start, begin, length;
};

std::vector<uint64_t> plain(const IndexArray& array) {
  std::vector<uint64_t> values;
  for (uint64_t i = 0; i < array.size(); ++i) values.push_back(array[i]);
  return values;
}

Plain plain(const PackIndex& index) {
  return {plain(index.offsets), plain(index.sequence), plain(index.start), plain(index.begin),
          plain(index.length)};
}

/// The invariants of every index. If no sequence is cut, begin and length are empty.
void expect_sound(const Plain& index, const std::vector<uint32_t>& lengths, const Packing& packing,
                  Overlong policy) {
  const uint32_t most = packing.max_length;
  const size_t packs = index.offsets.size() - 1;
  ASSERT_EQ(packs, packing.packs());
  ASSERT_EQ(index.offsets.front(), 0u);
  ASSERT_EQ(index.offsets.back(), index.sequence.size());
  ASSERT_EQ(index.start.size(), index.sequence.size());
  std::map<uint64_t, std::map<uint64_t, uint64_t>> pieces;  // sequence → begin → length
  for (size_t p = 0; p < packs; ++p) {
    ASSERT_LT(index.offsets[p], index.offsets[p + 1]) << "pack " << p << " is empty";
    const uint64_t deepest = packing.max_per_pack == 0 ? UINT64_MAX : packing.max_per_pack;
    ASSERT_LE(index.offsets[p + 1] - index.offsets[p], deepest);
    uint64_t used = 0;
    for (uint64_t e = index.offsets[p]; e < index.offsets[p + 1]; ++e) {
      ASSERT_LT(index.sequence[e], lengths.size());
      const uint64_t whole = lengths[index.sequence[e]];
      const uint64_t begin = index.begin.empty() ? 0 : index.begin[e];
      const uint64_t length = index.length.empty() ? whole : index.length[e];
      ASSERT_EQ(index.start[e], used) << "entry " << e;
      used += length;
      ASSERT_LE(begin + length, whole);
      ASSERT_TRUE(pieces[index.sequence[e]].emplace(begin, length).second) << "twice: " << index.sequence[e];
    }
    ASSERT_LE(used, most) << "pack " << p << " overflows";
  }
  for (uint64_t s = 0; s < lengths.size(); ++s) {
    const bool too_long = lengths[s] > most;
    if (too_long && policy == Overlong::drop) {
      ASSERT_EQ(pieces.count(s), 0u);
      continue;
    }
    uint64_t at = 0;
    for (const auto& [begin, length] : pieces[s]) {
      ASSERT_EQ(begin, at) << "sequence " << s << " has a gap";
      at += length;
    }
    ASSERT_EQ(at, too_long && policy == Overlong::truncate ? most : lengths[s]) << "sequence " << s;
  }
}

TEST(PackIndex, HoldsEverySequenceOnce) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<uint32_t> values = random_lengths(seed, 3000, 100);
    const Lengths lengths{std::span<const uint32_t>(values)};
    const uint32_t most = seed % 3 == 0 ? 100 : 30;
    const Overlong policy =
        most == 100 ? Overlong::error
                    : std::array{Overlong::drop, Overlong::truncate, Overlong::split}[seed / 3 % 3];
    const Input input = count(lengths, most, policy);
    Options options;
    options.algorithm = seed % 2 == 0 ? Algorithm::lpfhp : Algorithm::spfhp;
    options.max_per_pack = std::array{0U, 1U, 2U, 5U}[seed % 4];
    const Packing packing = plan(input.histogram, options);
    for (const OrderOptions& order : {OrderOptions{}, OrderOptions{.shuffle = seed}, OrderOptions{.ranks = 4},
                                      OrderOptions{.shuffle = seed, .ranks = 7}})
      expect_sound(plain(index_packs(packing, input, lengths, order)), values, packing, policy);
  }
}

TEST(PackIndex, SequencesOfOneLengthAreTakenInOrder) {
  const std::vector<uint32_t> values(100, 5);
  const Lengths lengths{std::span<const uint32_t>(values)};
  const Input input = count(lengths, 10);
  const Plain index = plain(index_packs(plan(input.histogram), input, lengths));
  EXPECT_TRUE(std::is_sorted(index.sequence.begin(), index.sequence.end()));
}

TEST(PackIndex, OfAGiantSequenceIsPieceByPiece) {
  const std::vector<uint64_t> values = {7, 1'000'003, 7};
  const Lengths lengths{std::span<const uint64_t>(values)};
  const Input input = count(lengths, 10, Overlong::split);
  const Packing packing = plan(input.histogram);
  for (const OrderOptions& order : {OrderOptions{}, OrderOptions{.shuffle = 3}}) {
    const std::vector<uint32_t> narrow(values.begin(), values.end());
    expect_sound(plain(index_packs(packing, input, lengths, order)), narrow, packing, Overlong::split);
  }
}

TEST(PackIndex, OfNothingIsEmpty) {
  const Lengths none;
  const Input input = count(none, 10);
  const PackIndex index = index_packs(plan(input.histogram), input, none, {.shuffle = 1});
  EXPECT_EQ(index.offsets.size(), 1u);
  EXPECT_EQ(index.offsets[0], 0u);
  EXPECT_EQ(index.sequence.size(), 0u);
}

TEST(PackIndex, TheSameSeedGivesTheSameOrder) {
  const std::vector<uint32_t> values = random_lengths(1, 3000, 100);
  const Lengths lengths{std::span<const uint32_t>(values)};
  const Input input = count(lengths, 100);
  const Packing packing = plan(input.histogram, {.algorithm = Algorithm::lpfhp});
  const auto order = [&](const OrderOptions& o) {
    return plain(index_packs(packing, input, lengths, o)).sequence;
  };
  EXPECT_EQ(order({.shuffle = 1}), order({.shuffle = 1}));
  EXPECT_NE(order({.shuffle = 1}), order({.shuffle = 2}));
  EXPECT_NE(order({.shuffle = 1}), order({}));
}

TEST(PackIndex, RefusesWhatDoesNotBelongTogether) {
  const std::vector<uint32_t> values = {3, 4, 5};
  const std::vector<uint32_t> others = {3, 4, 6};
  const Lengths lengths{std::span<const uint32_t>(values)};
  const Lengths changed{std::span<const uint32_t>(others)};
  const Input input = count(lengths, 10);
  const Packing packing = plan(input.histogram);
  EXPECT_ERROR("changed while it was packed", index_packs(packing, input, changed));
  const std::vector<uint32_t> longer = {3, 4, 11};  // 11 is omitted if overlong ones are dropped
  const Input dropping = count(lengths, 10, Overlong::drop);
  EXPECT_ERROR("changed while it was packed",
               index_packs(packing, dropping, Lengths{std::span<const uint32_t>(longer)}));
  const Input more = count(changed, 10);
  EXPECT_USAGE_ERROR("plan the histogram of this", index_packs(packing, more, changed));
  EXPECT_USAGE_ERROR("plan the histogram", index_packs(packing, input, Lengths{}));
}

TEST(PackIndex, UsesEightBytesOnlyWhereFourDoNotSuffice) {
  EXPECT_EQ(IndexArray(3, UINT32_MAX).width(), 4u);
  EXPECT_EQ(IndexArray(3, uint64_t{UINT32_MAX} + 1).width(), 8u);
  const std::vector<uint64_t> values = {uint64_t{1} << 33};
  const Lengths lengths{std::span<const uint64_t>(values)};
  const Input input = count(lengths, 1 << 20, Overlong::split);
  const PackIndex index = index_packs(plan(input.histogram), input, lengths);
  EXPECT_EQ(index.begin.width(), 8u);
  EXPECT_EQ(index.begin[8191], uint64_t{8191} << 20);
  EXPECT_EQ(index.sequence.width(), 4u);
}

Plain read_folder(const std::string& folder) {
  const auto array = [&](const std::string& name) {
    const std::string path = folder + "/" + name + ".npy";
    std::vector<uint64_t> values;
    if (!std::filesystem::exists(path)) return values;
    const std::string text = content_of(path);
    if (text.find("<u4") != std::string::npos)
      for (const uint32_t value : npy_values<uint32_t>(text)) values.push_back(value);
    else
      values = npy_values<uint64_t>(text);
    return values;
  };
  return {array("offsets"), array("sequence"), array("start"), array("begin"), array("length")};
}

TEST(PackFolder, HoldsTheIndexAndItsOrigin) {
  const test::TemporaryFolder folder;
  for (uint64_t seed = 0; seed < test::number_of_cases(4, 20); ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<uint32_t> values = random_lengths(seed, 100'000, 100);
    const Lengths lengths{std::span<const uint32_t>(values)};
    const Overlong policy = seed % 2 == 0 ? Overlong::split : Overlong::drop;
    const Input input = count(lengths, 60, policy);
    const Packing packing = plan(input.histogram, {.algorithm = Algorithm::lpfhp});
    const OrderOptions order = {.shuffle = seed};
    const std::string path = folder.file("packs");  // replaced each time
    write_packs(path + "/", packing, input, lengths, order, {"lengths.npy", 5});
    const Plain written = read_folder(path);
    expect_sound(written, values, packing, policy);
    const Plain made = plain(index_packs(packing, input, lengths, order));
    EXPECT_EQ(written.offsets, made.offsets);
    EXPECT_EQ(written.sequence, made.sequence);
    EXPECT_EQ(written.start, made.start);
    EXPECT_EQ(written.begin, made.begin);
    EXPECT_EQ(written.length, made.length);
    const auto meta = nlohmann::json::parse(content_of(path + "/meta.json"));
    EXPECT_EQ(meta["sequences"], values.size());
    EXPECT_EQ(meta["max_length"], 60);
    EXPECT_EQ(meta["algorithm"], "lpfhp");
    EXPECT_EQ(meta["seed"], 5);
    EXPECT_EQ(meta["shuffle"], seed);
    EXPECT_EQ(meta["arrays"]["sequence"]["type"], "u32");
    EXPECT_EQ(meta["overlong"]["policy"], name_of(policy));
    EXPECT_EQ(folder.count(), 1u);
  }
}

TEST(PackFolder, OfAHistogramHoldsItsStrategies) {
  const test::TemporaryFolder folder;
  const Input input = read_histogram(folder.write("h.csv", "3,2\n7,2\n"), 10);
  write_strategies(folder.file("packs"), plan(input.histogram), input, {"h.csv", 0});
  EXPECT_EQ(content_of(folder.file("packs/strategies.csv")), "packs,lengths\n2,7 3\n");
  EXPECT_EQ(nlohmann::json::parse(content_of(folder.file("packs/meta.json")))["strategies"], 1);
}

TEST(PackFolder, ReplacesOnlyItsOwn) {
  const test::TemporaryFolder folder;
  const std::vector<uint32_t> values = {3, 4};
  const Lengths lengths{std::span<const uint32_t>(values)};
  const Input input = count(lengths, 10);
  const Packing packing = plan(input.histogram);
  const auto write = [&](const std::string& path) {
    write_packs(path, packing, input, lengths, {}, {"x", 0});
  };
  folder.write("file", "precious");
  EXPECT_ERROR("not a folder", write(folder.file("file")));
  EXPECT_EQ(content_of(folder.file("file")), "precious");
  std::filesystem::create_directory(folder.file("thesis"));
  folder.write("thesis/chapter1.tex", "precious");
  EXPECT_ERROR("holds \"chapter1.tex\"", write(folder.file("thesis")));
  EXPECT_EQ(content_of(folder.file("thesis/chapter1.tex")), "precious");
  EXPECT_ERROR("cannot create a temporary folder", write(folder.file("missing/packs")));
  EXPECT_EQ(folder.count(), 2u);
}

TEST(PackFolder, ThatDoesNotFitLeavesNothingAndKeepsTheOldOne) {
  const test::TemporaryFolder folder;
  const std::vector<uint32_t> values = random_lengths(1, 100'000, 100);
  const Lengths lengths{std::span<const uint32_t>(values)};
  const Input input = count(lengths, 100);
  const Packing packing = plan(input.histogram, {.algorithm = Algorithm::lpfhp});
  const std::string path = folder.file("packs");
  write_packs(path, packing, input, lengths, {}, {"x", 0});
  const std::string before = content_of(path + "/sequence.npy");
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{100}, rlim_t{1000}, rlim_t{before.size() - 1}}) {
    const test::FileLimit limit(bytes);
    EXPECT_ERROR("cannot write", write_packs(path, packing, input, lengths, {}, {"x", 0})) << bytes;
    EXPECT_EQ(folder.count(), 1u) << bytes;
    EXPECT_EQ(content_of(path + "/sequence.npy"), before) << bytes;
  }
}

}  // namespace
}  // namespace tessera::pack
