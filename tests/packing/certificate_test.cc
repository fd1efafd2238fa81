// Lower bounds: valid, verifiable, and as sharp as possible on small histograms.
#include <gtest/gtest.h>
#include <tessera/packing.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "packing/histograms.h"
#include "packing/pricing.h"
#include "support/error_of.h"

namespace tessera::pack {
namespace {

using tessera::test::error_of;
using tessera::test::says;

/// The fewest packs by exhaustive search: opens a pack for the longest sequence, then tries all ways to fill
/// it.
class Exhaustive {
 public:
  Exhaustive(uint32_t max_length, uint32_t max_per_pack)
      : max_length_(max_length), depth_(max_per_pack == 0 ? max_length : max_per_pack) {}

  uint64_t fewest(const std::vector<uint64_t>& counts) {
    const auto longest = std::find_if(counts.rbegin(), counts.rend(), [](uint64_t c) { return c > 0; });
    if (longest == counts.rend()) return 0;
    if (const auto known = known_.find(counts); known != known_.end()) return known->second;
    const uint32_t length = static_cast<uint32_t>(counts.rend() - longest) - 1;
    std::vector<uint64_t> left = counts;
    --left[length];
    return known_[counts] = 1 + fewest_after(left, max_length_ - length, depth_ - 1, length);
  }

 private:
  uint64_t fewest_after(std::vector<uint64_t>& left, uint32_t room, uint32_t depth, uint32_t longest) {
    uint64_t best = fewest(left);
    for (uint32_t l = std::min(room, longest); depth > 0 && l > 0; --l) {
      if (left[l] == 0) continue;
      --left[l];
      best = std::min(best, fewest_after(left, room - l, depth - 1, l));
      ++left[l];
    }
    return best;
  }

  uint32_t max_length_;
  uint32_t depth_;
  std::map<std::vector<uint64_t>, uint64_t> known_;
};

TEST(Best, IsOptimalOnTinyHistograms) {
  uint32_t proven = 0;
  uint32_t cases = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const uint32_t max_length = std::uniform_int_distribution<uint32_t>(4, 24)(random);
    for (const test::Shape shape : test::shapes) {
      const Histogram histogram = test::random_histogram(shape, max_length, 11, random);
      for (const uint32_t depth : {0U, 2U, 3U}) {
        const uint64_t fewest = Exhaustive(max_length, depth).fewest(histogram.counts);
        const Packing best = plan(histogram, {.max_per_pack = depth});
        EXPECT_EQ(best.packs(), fewest) << "shape " << static_cast<int>(shape) << ", depth " << depth;
        EXPECT_LE(best.lower_bound(), fewest);
        proven += best.optimal();
        ++cases;
      }
    }
  }
  EXPECT_GT(proven, cases * 95 / 100);  // the relaxation's bound is rarely one short
}

TEST(Certificate, OfShuffledSequencesIsTheSame) {
  std::mt19937 random(5);
  const Histogram once = test::random_histogram(test::Shape::uniform, 200, 1000, random);
  std::vector<uint32_t> lengths;
  for (uint32_t l = 1; l <= once.max_length(); ++l) lengths.insert(lengths.end(), once.counts[l], l);
  std::shuffle(lengths.begin(), lengths.end(), random);
  Histogram again = Histogram::of_max_length(200);
  for (const uint32_t length : lengths) ++again.counts[length];
  const Options options{.max_per_pack = 3, .certify = true};
  const Certificate a = plan(once, options).certificate;
  const Certificate b = plan(again, options).certificate;
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.heaviest, b.heaviest);
  EXPECT_EQ(a.lower_bound, b.lower_bound);
}

/// The largest weight of a pack by recursion over the lengths, to compare with.
uint64_t heaviest_plainly(const Certificate& certificate, uint32_t room, uint64_t depth, uint32_t longest) {
  uint64_t heaviest = 0;
  for (uint32_t l = std::min(room, longest); depth > 0 && l > 0; --l)
    if (certificate.histogram.counts[l] > 0)
      heaviest =
          std::max(heaviest, certificate.weights[l] + heaviest_plainly(certificate, room - l, depth - 1, l));
  return heaviest;
}

TEST(Certificate, IsCheckedByAnExactKnapsack) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const uint32_t max_length = std::uniform_int_distribution<uint32_t>(1, 30)(random);
    Certificate certificate{.histogram = test::random_histogram(test::Shape::uniform, max_length, 12, random),
                            .max_per_pack = seed % 5,
                            .weights = {}};
    certificate.weights.resize(max_length + 1);
    for (uint64_t& weight : certificate.weights) weight = random() % 100;
    const uint64_t depth = certificate.max_per_pack == 0 ? max_length : certificate.max_per_pack;
    const uint64_t heaviest =
        std::max<uint64_t>(1, heaviest_plainly(certificate, max_length, depth, max_length));
    uint64_t total = 0;
    for (size_t l = 1; l <= max_length; ++l)
      total += certificate.histogram.counts[l] * certificate.weights[l];
    certificate.heaviest = heaviest;
    certificate.lower_bound = (total + heaviest - 1) / heaviest;
    EXPECT_EQ(error_of([&] { verify(certificate); }), "(no error)");
    if (heaviest < 2) continue;
    --certificate.heaviest;
    certificate.lower_bound = (total + heaviest - 2) / (heaviest - 1);
    EXPECT_ERROR("more than the", verify(certificate));
  }
}

/// `count` sequences of one token; a pack takes 16 of them.
Certificate of_single_tokens(uint64_t weight, uint64_t count) {
  Certificate certificate{.histogram = Histogram::of_max_length(16),
                          .max_per_pack = 0,
                          .weights = std::vector<uint64_t>(17),
                          .heaviest = 16 * weight,
                          .lower_bound = (count + 15) / 16};
  certificate.histogram.counts[1] = count;
  certificate.weights[1] = weight;
  return certificate;
}

TEST(Certificate, LetsAPackWeighTwoToThe62AtMost) {
  EXPECT_EQ(error_of([] { verify(of_single_tokens(uint64_t{1} << 58, 33)); }), "(no error)");
  EXPECT_ERROR("scale the weights down", verify(of_single_tokens((uint64_t{1} << 58) + 1, 33)));
}

// In 64 bits 16 weights of 2^60 are 0, so that a pack would seem to weigh nothing and any bound to be proven.
TEST(Certificate, IsNoProofWherePacksOverflow) {
  for (const uint64_t weight : {uint64_t{1} << 60, (uint64_t{1} << 60) + 1, uint64_t{1} << 63, UINT64_MAX}) {
    Certificate certificate = of_single_tokens(weight, 32);
    certificate.heaviest = std::max<uint64_t>(1, certificate.heaviest);
    certificate.lower_bound = 32;
    EXPECT_ERROR("scale the weights down", verify(certificate)) << weight;
  }
}

TEST(Certificate, AddsWeightsBeyond64Bits) {
  Certificate certificate = of_single_tokens(uint64_t{1} << 58, uint64_t{1} << 40);  // 2^98 in all
  EXPECT_EQ(error_of([&] { verify(certificate); }), "(no error)");
  EXPECT_EQ(certificate.lower_bound, uint64_t{1} << 36);
  ++certificate.lower_bound;
  EXPECT_ERROR("the weights prove 68719476736 packs", verify(certificate));
}

/// A depth of d takes d + 1 tables; a file may ask for more tables than fit in memory.
TEST(Certificate, IsRefusedWhereItTakesMoreMemoryThanThereIs) {
  constexpr uint32_t kLength = 1 << 24, kDepth = 1 << 22;
  Certificate certificate{.histogram = Histogram::of_max_length(kLength),
                          .max_per_pack = kDepth,
                          .weights = std::vector<uint64_t>(kLength + 1),
                          .heaviest = 1,
                          .lower_bound = 1};
  certificate.histogram.counts[1] = certificate.weights[1] = 1;
  EXPECT_ERROR("verifying a certificate needs 56", verify(certificate));
}

TEST(Knapsack, FindsHeaviestPacksWithEachRow) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::vector<uint32_t> lengths = {3, 5, 7, 11, 13, 20};
    const uint32_t depth = seed % 6 + 1;
    Knapsack<uint64_t> knapsack(lengths, 40, depth);
    std::vector<uint64_t> weights;
    for (size_t i = 0; i < lengths.size(); ++i) weights.push_back(random() % 50);
    knapsack.solve(weights);
    uint64_t heaviest = 0;
    for (uint32_t row = 0; row < lengths.size(); ++row) {
      const Pattern pattern = knapsack.pack_with(row, static_cast<uint32_t>(random()));
      uint64_t weight = 0;
      uint32_t tokens = 0;
      uint32_t sequences = 0;
      bool has_row = false;
      for (const Slot& slot : pattern) {
        weight += weights[slot.row] * slot.copies;
        tokens += lengths[slot.row] * slot.copies;
        sequences += slot.copies;
        has_row |= slot.row == row;
      }
      EXPECT_TRUE(has_row);
      EXPECT_LE(tokens, 40U);
      EXPECT_LE(sequences, depth);
      heaviest = std::max(heaviest, weight);
    }
    EXPECT_EQ(heaviest, knapsack.heaviest());
  }
}

class CertificateFile : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "tessera_certificate_" + info->name() + ".json";
    Histogram histogram = Histogram::of_max_length(10);
    histogram.counts[6] = 3;
    histogram.counts[5] = 7;
    certificate_ = plan(histogram, {.max_per_pack = 2}).certificate;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string error_with(const char* key, const nlohmann::json& value) {
    save_certificate(path_, certificate_);
    nlohmann::json content = nlohmann::json::parse(std::ifstream(path_));
    if (value.is_discarded())
      content.erase(key);
    else
      content[key] = value;
    std::ofstream(path_) << content;
    return error_of([&] { verify(load_certificate(path_)); });
  }

  std::string path_;
  Certificate certificate_;
};

TEST_F(CertificateFile, ReadsWhatItWrote) {
  save_certificate(path_, certificate_);
  const Certificate read = load_certificate(path_);
  EXPECT_EQ(error_of([&] { verify(read); }), "(no error)");
  EXPECT_EQ(read.histogram.counts, certificate_.histogram.counts);
  EXPECT_EQ(read.max_per_pack, certificate_.max_per_pack);
  EXPECT_EQ(read.heaviest, certificate_.heaviest);
  EXPECT_EQ(read.lower_bound, certificate_.lower_bound);
  for (const uint32_t length : {5, 6}) EXPECT_EQ(read.weights[length], certificate_.weights[length]);
}

TEST_F(CertificateFile, TakesNumbersUpToTheirLimits) {
  using nlohmann::json;
  EXPECT_EQ(error_with("max_per_pack", UINT32_MAX), "(no error)");
  EXPECT_TRUE(says(error_with("max_per_pack", uint64_t{1} << 32), "not a whole number up to 4294967295"));
  EXPECT_TRUE(says(error_with("max_length", (uint64_t{1} << 28) + 1), "not a whole number up to 268435456"));
  EXPECT_TRUE(says(error_with("lower_bound", UINT64_MAX), "the certificate claims 18446744073709551615"));
  // A sequence may be as long as a pack, and no longer.
  EXPECT_TRUE(says(error_with("lengths", json{{10, 3, 1}}), "the weights prove 1 packs"));
  EXPECT_TRUE(says(error_with("lengths", json{{11, 3, 1}}), "not a whole number up to 10"));
  EXPECT_TRUE(says(error_with("lengths", json{{0, 3, 1}}), "length 0 comes after length 0"));
  EXPECT_TRUE(says(error_with("lengths", json{{5, 3, 1}, {5, 3, 1}}), "length 5 comes after length 5"));
}

TEST_F(CertificateFile, IsRefusedWhereItIsWrong) {
  EXPECT_TRUE(says(error_with("lower_bound", 8), "the certificate claims 8"));
  EXPECT_TRUE(says(error_with("heaviest", 0), "no pack weighs"));
  EXPECT_TRUE(says(error_with("heaviest", -1), "not a whole number"));
  EXPECT_TRUE(says(error_with("max_length", nlohmann::json(nlohmann::json::value_t::discarded)),
                   "\"max_length\" is missing"));
  EXPECT_TRUE(says(error_with("max_length", 4), "not a whole number up to 4"));
  EXPECT_TRUE(says(error_with("schema", 2), "schema 2"));
  EXPECT_TRUE(says(error_with("lengths", 3), "not a list"));
  EXPECT_TRUE(says(error_with("lengths", {{5, 7}}), "[length, count, weight]"));
  EXPECT_TRUE(says(error_with("lengths", {{6, 1, 1}, {5, 1, 1}}), "comes after length 6"));
  EXPECT_TRUE(says(error_with("lengths", {{11, 1, 1}}), "up to 10"));
  EXPECT_TRUE(says(error_with("lengths", {{5, 1, uint64_t{1} << 63}}), "scale the weights down"));
  std::ofstream(path_) << "{\"schema\": 1";
  EXPECT_ERROR("this is not JSON", load_certificate(path_));
  constexpr size_t kDeep = 200'000;
  std::ofstream(path_) << "{\"schema\": 1, \"lengths\": " << std::string(kDeep, '[')
                       << std::string(kDeep, ']') << "}";
  EXPECT_ERROR("nests deeper than 32 levels", load_certificate(path_));
}

}  // namespace
}  // namespace tessera::pack
