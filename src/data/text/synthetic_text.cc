#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/token_text.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/random.h"

namespace tessera {
namespace {

constexpr uint32_t kTextStream = 0x74657800;
constexpr uint32_t kFewestTokens = 32;
constexpr uint32_t kMostTokensOfText = 1 << 24;
constexpr uint32_t kMostDocuments = 10'000'000;
constexpr uint32_t kWordsOfTopic = 50;
constexpr uint32_t kMostSentences = 12, kShortestSentence = 4, kLongestSentence = 36;
constexpr SpecialTokens kSynthetic = {.pad = 0, .cls = 1, .sep = 2, .mask = 3};
constexpr uint32_t kFirstWord = 4;

/// Cumulative sums of 1 / (rank + 1).
std::vector<double> zipf_sums(uint32_t words) {
  std::vector<double> sums;
  double sum = 0;
  for (uint32_t rank = 0; rank < words; ++rank) sums.push_back(sum += 1.0 / (rank + 1));
  return sums;
}

/// A rank with a probability in proportion to 1 / (rank + 1).
uint32_t rank_of(const std::vector<double>& sums, uint32_t word) {
  const double at = word * 0x1p-32 * sums.back();
  const auto found = std::ranges::upper_bound(sums, at);
  return static_cast<uint32_t>(std::min<ptrdiff_t>(found - sums.begin(), std::ssize(sums) - 1));
}

/// Bytes of tokens and limits of some documents, on average.
uint64_t bytes_of(uint64_t documents) {
  constexpr uint64_t kSentences = (1 + kMostSentences) / 2;
  constexpr uint64_t kTokens = kSentences * (kShortestSentence + kLongestSentence) / 2;
  return documents * (kTokens * sizeof(uint32_t) + (kSentences + 1) * sizeof(uint64_t));
}

}  // namespace

TokenText synthetic_text(const SyntheticText& s) {
  if (s.vocabulary < kFewestTokens || s.vocabulary > kMostTokensOfText)
    throw UsageError(fmt::format("a vocabulary of {} tokens; synthetic text has {} to {}", s.vocabulary,
                                 kFewestTokens, kMostTokensOfText));
  if (s.documents == 0 || s.documents > kMostDocuments)
    throw UsageError(fmt::format("{} documents; synthetic text has 1 to {}", s.documents, kMostDocuments));
  base::require_memory(bytes_of(s.documents), fmt::format("synthetic text of {} documents", s.documents));
  TokenText text{.name = "synthetic text", .vocabulary = s.vocabulary, .special = kSynthetic};
  std::vector<uint32_t> tokens;
  const uint32_t words = s.vocabulary - kFirstWord;
  const std::vector<double> sums = zipf_sums(words);
  for (uint32_t document = 0; document < s.documents; ++document) {
    base::RandomSequence random{base::RandomStream(s.seed, document, kTextStream)};
    const uint32_t topic = random.below(words);
    for (uint32_t sentence = 1 + random.below(kMostSentences); sentence > 0; --sentence) {
      const uint32_t length = kShortestSentence + random.below(kLongestSentence - kShortestSentence + 1);
      for (uint32_t i = 0; i < length; ++i) {
        const bool of_topic = random.below(3) == 0;
        const uint32_t word =
            of_topic ? (topic + random.below(kWordsOfTopic)) % words : rank_of(sums, random.word());
        tokens.push_back(kFirstWord + word);
      }
      text.sentences.push_back(tokens.size());
    }
    text.documents.push_back(text.sentences.size() - 1);
  }
  text.tokens = std::move(tokens);
  return text;
}

}  // namespace tessera
