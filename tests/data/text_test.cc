// Text of tokens: files, pairs of sentences, masks, and batches of packs.
#include <gtest/gtest.h>
#include <tessera/pretraining.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "data/text/pairs.h"
#include "io/files.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using graph::kIgnoredLabel;
using train::mask;
using train::pairs_of;
using train::Prediction;
using train::SentencePair;

TokenText small_text() {
  return {.name = "small",
          .vocabulary = 50,
          .special = {0, 1, 2, 3},
          .tokens = {10, 11, 12, 13, 14, 20, 21, 22, 30},
          .sentences = {0, 3, 5, 8, 9},
          .documents = {0, 2, 4}};
}

/// Tokens with another one at a place.
Tokens with_token(const Tokens& tokens, size_t place, uint32_t token) {
  std::vector<uint32_t> all = tokens.all();
  all[place] = token;
  return all;
}

Tokens range_of(const Tokens& tokens, uint64_t begin, uint64_t end) {
  const Tokens::Range range{begin, end};
  return tokens.parts({&range, 1});
}

/// The place of these tokens in a file of two-byte tokens.
size_t place_of(const std::string& content, const std::vector<uint32_t>& tokens) {
  std::string bytes;
  for (const uint32_t token : tokens) {
    bytes += static_cast<char>(token & 0xFF);
    bytes += static_cast<char>(token >> 8 & 0xFF);
  }
  return content.rfind(bytes);
}

const TokenText& text() {
  static const TokenText all = synthetic_text({.vocabulary = 300, .documents = 200, .seed = 4});
  return all;
}

std::shared_ptr<const TokenText> shared_text() { return std::make_shared<const TokenText>(text()); }

class TokenFileTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  const test::TemporaryFolder folder_;
};

TEST_F(TokenFileTest, FilesKeepWhatTheyAreGiven) {
  TokenText wide = small_text();
  wide.vocabulary = 100'000;
  wide.tokens = with_token(wide.tokens, 4, 99'999);
  for (const TokenText& written : {small_text(), wide, text()}) {
    const std::string file = path("tokens.safetensors");
    write_tokens(file, written);
    const TokenText found = read_tokens(file);
    EXPECT_EQ(found.vocabulary, written.vocabulary);
    EXPECT_EQ(found.special.mask, written.special.mask);
    EXPECT_TRUE(found.tokens.is_in_file());
    EXPECT_EQ(found.tokens.all(), written.tokens.all());
    EXPECT_EQ(found.sentences, written.sentences);
    EXPECT_EQ(found.documents, written.documents);
  }
}

TEST(TokenText, WhatDoesNotFitIsRefused) {
  const auto error = [](auto change) {
    TokenText changed = small_text();
    change(changed);
    return test::error_of([&] { require_valid(changed); });
  };
  EXPECT_TRUE(test::says(error([](TokenText& t) { t.tokens = with_token(t.tokens, 4, 50); }),
                         "token 4 is 50, beyond the vocabulary of 50"));
  EXPECT_TRUE(test::says(error([](TokenText& t) { t.special.mask = 60; }), "special token mask is 60"));
  EXPECT_TRUE(test::says(error([](TokenText& t) { t.special.mask = 2; }), "sep and mask are both 2"));
  EXPECT_TRUE(test::says(error([](TokenText& t) { t.vocabulary = 3; }), "a vocabulary of 3 tokens"));
  EXPECT_TRUE(test::says(error([](TokenText& t) { t.tokens = Tokens(); }), "no tokens"));
  EXPECT_TRUE(
      test::says(error([](TokenText& t) { t.sentences[2] = 3; }), "sentence 1 is [3, 3): it is empty"));
  EXPECT_TRUE(test::says(error([](TokenText& t) { t.tokens = range_of(t.tokens, 0, 8); }),
                         "end at 9, and there are 8 tokens"));
  EXPECT_TRUE(test::says(error([](TokenText& t) { t.documents[0] = 1; }), "do not begin with 0"));
  EXPECT_TRUE(
      test::says(error([](TokenText& t) { t.documents[2] = 5; }), "end at 5, and there are 4 sentences"));
}

TEST_F(TokenFileTest, OtherFilesAreRefused) {
  const std::string file = path("tokens.safetensors");
  write_tokens(file, small_text());
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 5);
  EXPECT_ERROR("it may be truncated", read_tokens(file));
  std::ofstream(file) << "text";
  EXPECT_ERROR(file, read_tokens(file));
  EXPECT_ERROR("No such file", read_tokens(path("none")));
  EXPECT_ERROR("lacks train.safetensors", load_text(folder_.path().string(), 0.1, 0));
  write_tokens(path("train.safetensors"), small_text());
  EXPECT_ERROR("lacks test.safetensors", load_text(folder_.path().string(), 0.1, 0));
  TokenText other = small_text();
  other.vocabulary = 60;
  write_tokens(path("test.safetensors"), other);
  EXPECT_ERROR("vocabularies of the texts for training and held out differ, 50 and 60",
               load_text(folder_.path().string(), 0.1, 0));
  other = small_text();
  other.special.mask = 9;
  write_tokens(path("test.safetensors"), other);
  EXPECT_ERROR("special tokens of the texts for training and held out differ",
               load_text(folder_.path().string(), 0.1, 0));
}

/// A valid header promises tokens and limits other than the real ones.
TEST_F(TokenFileTest, DamagedContentIsRefused) {
  const std::string file = path("tokens.safetensors");
  write_tokens(file, small_text());
  const std::string whole = test::content_of(file);
  const auto with = [&](uint64_t at, std::initializer_list<char> bytes) {
    std::string damaged = whole;
    std::ranges::copy(bytes, damaged.begin() + static_cast<int64_t>(at));
    folder_.write("tokens.safetensors", damaged);
    return test::error_of([&] { read_tokens(file); });
  };
  const size_t first = place_of(whole, small_text().tokens.all());
  ASSERT_NE(first, std::string::npos);
  const size_t sentences = first + 2 * small_text().tokens.size();
  EXPECT_EQ(with(first, {10}), "(no error)");
  EXPECT_TRUE(test::says(with(first + 8, {0, 1}), file + ": token 4 is 256, beyond the vocabulary of 50"));
  EXPECT_TRUE(test::says(with(sentences + 8, {7}), file + ": sentence 1 is [7, 5): it is empty, or limits"));
  EXPECT_TRUE(test::says(with(sentences + 15, {'\xFF'}), file + ": sentence 1 is [18374686479671623683, 5)"));
}

TEST_F(TokenFileTest, TokensOfFilesAreThoseInMemory) {
  TokenText wide = text();
  wide.vocabulary = 100'000;
  for (const TokenText& written : {text(), wide}) {  // 2 and 4 bytes for a token
    const std::string file = path("tokens.safetensors");
    write_tokens(file, written);
    const TextSplit in_memory = split_text(written, 0.3, 5), in_file = load_text(file, 0.3, 5);
    for (const auto& [own, other] :
         {std::pair(in_memory.train, in_file.train), {in_memory.held_out, in_file.held_out}}) {
      EXPECT_TRUE(other->tokens.is_in_file());
      EXPECT_EQ(other->tokens.all(), own->tokens.all());
      EXPECT_EQ(other->sentences, own->sentences);
      EXPECT_EQ(other->documents, own->documents);
      const TextSplit again = split_text(*own, 0.5, 1), of_part = split_text(*other, 0.5, 1);
      EXPECT_EQ(of_part.train->tokens.all(), again.train->tokens.all());
      PretrainingData first(own, {.length = 64, .seed = 2}), second(other, {.length = 64, .seed = 2});
      EXPECT_EQ(first.batch(1, 3, 5).input_ids, second.batch(1, 3, 5).input_ids);
      EXPECT_EQ(first.batch(1, 3, 5).masked_lm_labels, second.batch(1, 3, 5).masked_lm_labels);
    }
  }
}

TEST_F(TokenFileTest, AFileMayBeReplacedButNotChanged) {
  const std::string file = path("tokens.safetensors");
  write_tokens(file, small_text());
  const TokenText found = read_tokens(file);
  TokenText other = small_text();
  other.tokens = with_token(other.tokens, 4, 49);
  write_tokens(file, other);
  EXPECT_EQ(found.tokens.all(), small_text().tokens.all());
  const TokenText second = read_tokens(file);
  const size_t first = place_of(test::content_of(file), other.tokens.all());
  ASSERT_NE(first, std::string::npos);
  {
    std::fstream changing(file, std::ios::binary | std::ios::in | std::ios::out);
    changing.seekp(static_cast<std::streamoff>(first) + 9);
    changing.put(1);  // the upper byte of token 4
  }
  EXPECT_ERROR(file + ": token 4 is 305, and was 49 at most when the file was opened", second.tokens.all());
  std::filesystem::resize_file(file, first + 4);
  EXPECT_ERROR(file + ": the file became shorter", second.tokens.all());
  std::vector<uint32_t> out(3);
  EXPECT_USAGE_ERROR("tokens [7, 10) of a text; it has 9", found.tokens.read(7, out));
  EXPECT_USAGE_ERROR("tokens [4, 10) of a text", range_of(found.tokens, 4, 10));
}

TEST(TextSplit, EachDocumentIsInOnePart) {
  const TextSplit split = split_text(text(), 0.1, 3);
  require_valid(*split.train);
  require_valid(*split.held_out);
  EXPECT_EQ(split.held_out->count(), 20U);
  EXPECT_EQ(split.train->count(), 180U);
  EXPECT_EQ(split.train->tokens.size() + split.held_out->tokens.size(), text().tokens.size());
  EXPECT_ERROR("2 documents; at least 4", split_text(small_text(), 0.1, 0));
  EXPECT_EQ(split_text(text(), 1e-9, 3).held_out->count(), 2U);
  EXPECT_EQ(split_text(text(), 0.9999, 3).train->count(), 2U);
  for (const double fraction : {std::nan(""), -1.0, 0.0, 1.0, 2.0})
    EXPECT_USAGE_ERROR("fraction of documents held out", split_text(text(), fraction, 3));
}

TEST(SentencePairs, AreTwoPartsOfOneDocumentOrOfTwo) {
  for (const uint32_t length : {8U, 32U, 128U, 1000U}) {
    const std::vector<SentencePair> pairs = pairs_of(text(), length, 1);
    const auto document_of = [&](uint64_t token) {
      const auto sentence = std::ranges::upper_bound(text().sentences, token) - text().sentences.begin() - 1;
      return std::ranges::upper_bound(text().documents, static_cast<uint64_t>(sentence)) -
             text().documents.begin() - 1;
    };
    std::set<int64_t> documents;
    double random = 0;
    for (const SentencePair& pair : pairs) {
      ASSERT_LE(pair.length(), length);
      ASSERT_GT(pair.first.length, 0U);
      ASSERT_GT(pair.second.length, 0U);
      const int64_t first = document_of(pair.first.begin), second = document_of(pair.second.begin);
      ASSERT_EQ(document_of(pair.first.begin + pair.first.length - 1), first);
      ASSERT_EQ(document_of(pair.second.begin + pair.second.length - 1), second);
      ASSERT_EQ(first != second, pair.is_random);
      if (!pair.is_random) {
        ASSERT_LE(pair.first.begin + pair.first.length, pair.second.begin);
      }
      documents.insert(first);
      random += pair.is_random ? 1 : 0;
    }
    EXPECT_EQ(documents.size(), text().count());
    const auto count = static_cast<double>(pairs.size());
    EXPECT_NEAR(random, count / 2, 2 * std::sqrt(count)) << length;
  }
  TokenText one = small_text();
  one.documents = {0, 4};
  EXPECT_ERROR("at least two are needed", pairs_of(one, 32, 0));
}

TEST(Masks, HaveTheirRates) {
  constexpr uint32_t kVocabulary = 1000, kLength = 128;
  const SpecialTokens special;
  double chosen = 0, masked = 0, replaced = 0, kept = 0;
  std::vector<double> by_place(kLength);
  constexpr uint32_t kSequences = 4000;
  for (uint32_t sequence = 0; sequence < kSequences; ++sequence) {
    std::vector<uint32_t> tokens(kLength);
    for (uint32_t i = 0; i < kLength; ++i) tokens[i] = 200 + (7 * i + sequence) % 700;
    tokens[0] = special.cls, tokens[50] = tokens[kLength - 1] = special.sep;
    const std::vector<uint32_t> before = tokens;
    const std::vector<Prediction> found = mask(tokens, kVocabulary, special, 9, 3, sequence);
    ASSERT_EQ(found.size(), predictions_of(kLength));
    std::set<uint32_t> places;
    for (const Prediction& p : found) {
      ASSERT_EQ(before[p.place], p.label);
      ASSERT_FALSE(special.contains(p.label));
      const uint32_t now = tokens[p.place];
      (now == special.mask ? masked : now == p.label ? kept : replaced) += 1;
      ASSERT_TRUE(now == special.mask || !special.contains(now));
      ASSERT_LT(now, kVocabulary);
      by_place[p.place] += 1;
      places.insert(p.place);
    }
    ASSERT_EQ(places.size(), found.size());
    for (uint32_t i = 0; i < kLength; ++i) {
      if (!places.contains(i)) {
        ASSERT_EQ(tokens[i], before[i]);
      }
    }
    chosen += static_cast<double>(found.size());
  }
  EXPECT_NEAR(chosen / kSequences / kLength, 0.15, 0.005);
  const auto expect_rate = [](double count, double of, double rate) {
    EXPECT_NEAR(count, of * rate, 4 * std::sqrt(of * rate * (1 - rate)));
  };
  expect_rate(masked, chosen, 0.8);
  expect_rate(replaced, chosen, 0.1);  // one in a thousand draws the token that was there
  expect_rate(kept, chosen, 0.1);
  for (uint32_t i = 0; i < kLength; ++i) {
    const bool is_special = i == 0 || i == 50 || i == kLength - 1;
    EXPECT_NEAR(by_place[i], is_special ? 0 : kSequences * 19.0 / 125,
                5 * std::sqrt(kSequences * 0.152 * 0.848));
  }
}

TEST(Masks, FollowFromSeedEpochAndSequence) {
  std::vector<uint32_t> tokens(64);
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = 200 + i;
  std::set<std::vector<uint32_t>> all;
  for (const uint64_t seed : {1, 2})
    for (const uint32_t epoch : {0, 1})
      for (const uint64_t sequence : {5, 6}) {
        std::vector<uint32_t> first = tokens, again = tokens;
        mask(first, 1000, {}, seed, epoch, sequence);
        mask(again, 1000, {}, seed, epoch, sequence);
        EXPECT_EQ(first, again);
        all.insert(first);
      }
  EXPECT_EQ(all.size(), 8U);
  std::vector<uint32_t> special = {101, 102, 102};
  EXPECT_TRUE(mask(special, 1000, {}, 0, 0, 0).empty());
}

/// The sequences of a batch: tokens as they were before masks, with labels, by content.
std::multiset<std::vector<uint32_t>> contents_of(const PretrainingBatch& b) {
  std::multiset<std::vector<uint32_t>> found;
  for (uint32_t pack = 0; pack < b.shape.packs; ++pack) {
    std::vector<uint32_t> ids(b.input_ids.begin() + pack * b.shape.tokens,
                              b.input_ids.begin() + (pack + 1) * b.shape.tokens);
    for (uint32_t i = 0; i < b.shape.predictions; ++i) {
      const size_t slot = size_t{pack} * b.shape.predictions + i;
      if (b.masked_lm_labels[slot] != kIgnoredLabel)
        ids.at(b.masked_lm_positions[slot]) = b.masked_lm_labels[slot];
    }
    std::map<uint32_t, std::vector<uint32_t>> by_sequence;
    for (uint32_t i = 0; i < b.shape.tokens; ++i)
      if (const uint32_t id = b.sequence_ids[pack * b.shape.tokens + i]; id != 0)
        by_sequence[id].push_back(ids[i]);
    for (const auto& [id, tokens] : by_sequence) found.insert(tokens);
  }
  return found;
}

void expect_sound(const PretrainingBatch& b, const SpecialTokens& special) {
  for (uint32_t pack = 0; pack < b.shape.packs; ++pack) {
    const size_t at = size_t{pack} * b.shape.tokens;
    uint32_t sequences = 0;
    for (uint32_t i = 0; i < b.shape.tokens; ++i) {
      const uint32_t id = b.sequence_ids[at + i];
      if (id == 0) {
        EXPECT_EQ(b.input_ids[at + i], special.pad);
        continue;
      }
      const bool begins = i == 0 || b.sequence_ids[at + i - 1] != id;
      EXPECT_EQ(b.position_ids[at + i], begins ? 0 : b.position_ids[at + i - 1] + 1);
      EXPECT_EQ(b.input_ids[at + i] == special.cls, begins);
      if (!begins) continue;
      const size_t of = size_t{pack} * b.shape.sequences + sequences;
      EXPECT_EQ(id, ++sequences);
      EXPECT_EQ(b.cls_positions[of], i);
      EXPECT_LE(b.next_sentence_labels[of], 1U);
    }
    for (uint32_t i = sequences; i < b.shape.sequences; ++i)
      EXPECT_EQ(b.next_sentence_labels[size_t{pack} * b.shape.sequences + i], kIgnoredLabel);
  }
}

TEST(PretrainingData, AnEpochHasEachSequenceOnce) {
  for (const bool packed : {true, false}) {
    PretrainingData data(shared_text(), {.length = 96, .packed = packed, .seed = 2});
    std::multiset<std::vector<uint32_t>> wanted;
    for (const SentencePair& pair : pairs_of(text(), 96, 2)) {
      std::vector<uint32_t> tokens = {text().special.cls};
      for (const auto& range : {pair.first, pair.second}) {
        const std::span<const uint32_t> of = text().tokens.in_memory().subspan(range.begin, range.length);
        tokens.insert(tokens.end(), of.begin(), of.end());
        tokens.push_back(text().special.sep);
      }
      wanted.insert(tokens);
    }
    EXPECT_EQ(wanted.size(), data.sequences());
    const uint64_t packs = data.packing().packs();
    EXPECT_EQ(packed, packs < data.sequences());
    const graph::BertBatch shape = data.shape(3);
    EXPECT_LE(shape.predictions, 96 * 15 / 100 + shape.sequences);
    EXPECT_EQ(shape.tokens, 96U);
    EXPECT_EQ(packed, shape.sequences > 1);
    for (const uint32_t epoch : {0U, 1U}) {
      std::multiset<std::vector<uint32_t>> found;
      uint64_t sequences = 0, tokens = 0, in_packs = 0;
      for (uint64_t first = 0; first < packs; first += 7) {
        const PretrainingBatch batch = data.batch(epoch, first, 7);
        EXPECT_EQ(batch.input_ids.size(), 7U * 96);
        expect_sound(batch, text().special);
        found.merge(contents_of(batch));
        sequences += batch.sequences, tokens += batch.tokens, in_packs += batch.packs;
      }
      EXPECT_EQ(found, wanted);
      EXPECT_EQ(sequences, data.sequences());
      EXPECT_EQ(tokens, data.tokens());
      EXPECT_EQ(in_packs, packs);
    }
  }
}

TEST(PretrainingData, ABatchFollowsFromItsPlace) {
  PretrainingData all(shared_text(), {.length = 64, .seed = 2}),
      again(shared_text(), {.length = 64, .seed = 2});
  const PretrainingBatch first = all.batch(0, 0, 4);
  all.batch(0, 4, 4);
  const PretrainingBatch wanted = all.batch(1, 4, 4);
  const PretrainingBatch found = again.batch(1, 4, 4);  // without the batches before
  EXPECT_EQ(found.input_ids, wanted.input_ids);
  EXPECT_EQ(found.masked_lm_labels, wanted.masked_lm_labels);
  EXPECT_EQ(found.next_sentence_labels, wanted.next_sentence_labels);
  EXPECT_NE(found.input_ids, all.batch(0, 4, 4).input_ids);
  EXPECT_EQ(again.batch(0, 0, 4).input_ids, first.input_ids);
}

TEST(PretrainingData, ImpossibleOnesAreRefused) {
  EXPECT_USAGE_ERROR("sequences of 7 tokens", PretrainingData(shared_text(), {.length = 7}));
  PretrainingData data(shared_text(), {.length = 64});
  EXPECT_USAGE_ERROR("of an epoch; it has", data.batch(0, data.packing().packs(), 1));
  EXPECT_USAGE_ERROR("a batch of 0 packs", data.batch(0, 0, 0));
  EXPECT_USAGE_ERROR("a batch of 0 packs", data.shape(0));
  EXPECT_USAGE_ERROR("a text is missing", PretrainingData(nullptr, {}));
  auto broken = std::make_shared<TokenText>(text());
  broken->documents[1] = uint64_t{1} << 40;
  EXPECT_ERROR("document 1 is [1099511627776, ", PretrainingData(broken, {}));
}

TEST(PretrainingData, ThreadsMayTakeBatchesAtOnce) {
  PretrainingData shared(shared_text(), {.length = 64, .seed = 2}),
      own(shared_text(), {.length = 64, .seed = 2});
  constexpr uint32_t kEpochs = 4, kBatches = 30;
  std::vector<std::vector<uint32_t>> found(size_t{kEpochs} * kBatches);
  {
    std::vector<std::jthread> threads;
    for (uint32_t epoch = 0; epoch < kEpochs; ++epoch)
      threads.emplace_back([&, epoch] {
        for (uint32_t i = 0; i < kBatches; ++i)
          found[epoch * kBatches + i] = shared.batch(epoch, i, 2).input_ids;
      });
  }
  for (uint32_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], own.batch(i / kBatches, i % kBatches, 2).input_ids) << i;
}

TEST(SyntheticText, FollowsFromTheSeed) {
  const TokenText first = synthetic_text({.documents = 20, .seed = 1});
  EXPECT_EQ(first.tokens.all(), synthetic_text({.documents = 20, .seed = 1}).tokens.all());
  EXPECT_NE(first.tokens.all(), synthetic_text({.documents = 20, .seed = 2}).tokens.all());
  require_valid(first);
  require_valid(synthetic_text({.documents = 1}));
  EXPECT_USAGE_ERROR("a vocabulary of 5", synthetic_text({.vocabulary = 5}));
  EXPECT_USAGE_ERROR("0 documents", synthetic_text({.documents = 0}));
  EXPECT_USAGE_ERROR("20000000 documents", synthetic_text({.documents = 20'000'000}));
}

}  // namespace
}  // namespace tessera
