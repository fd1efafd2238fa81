#include "data/text/pairs.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/pretraining.h>

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace tessera {
namespace train {
namespace {

using base::RandomSequence;
using base::RandomStream;

constexpr uint32_t kPairStream = 0x74657801;
constexpr uint32_t kMaskStream = 0x74657802;
constexpr uint32_t kPiecesPerShortOne = 10;
constexpr unsigned kPlaceBits = 20;  // of a token in its sequence
constexpr uint32_t kAllPercent = 100, kMaskedPercent = 80, kReplacedPercent = 10;

/// Takes the pieces of documents one after the other.
class PairMaker {
 public:
  PairMaker(const TokenText& text, uint32_t length, uint64_t seed)
      : text_(text), longest_(length - kSpecialPerPair), seed_(seed) {}

  std::vector<SentencePair> all() && {
    for (uint64_t document = 0; document < text_.count(); ++document) add(document);
    return std::move(pairs_);
  }

 private:
  void add(uint64_t document) {
    RandomSequence random(RandomStream(seed_, static_cast<uint32_t>(document), kPairStream));
    const uint64_t end = text_.documents[document + 1];
    for (uint64_t at = text_.documents[document]; at < end;) {
      const bool is_short = random.below(kPiecesPerShortOne) == 0;
      const uint32_t wanted = is_short ? 2 + random.below(longest_ - 1) : longest_;
      uint64_t after = at;
      while (after < end && tokens(at, after) < wanted) ++after;
      at = add_piece(document, at, after, wanted, random);
    }
  }

  /// Adds a pair of the sentences [begin, end) of a document, of `wanted` tokens if another document has the
  /// second part; returns the first sentence that is left.
  uint64_t add_piece(uint64_t document, uint64_t begin, uint64_t end, uint32_t wanted,
                     RandomSequence& random) {
    const auto count = static_cast<uint32_t>(end - begin);
    const uint64_t middle = count == 1 ? end : begin + 1 + random.below(count - 1);
    const uint64_t first = text_.sentences[begin], last = text_.sentences[end];
    const bool is_random = random.below(2) == 1 || last - first == 1;
    if (is_random) {
      const uint64_t own = tokens(begin, middle);
      add_pair(first, text_.sentences[middle], elsewhere(document, own < wanted ? wanted - own : 1, random),
               true, random);
      return middle;
    }
    const uint64_t between = count > 1 ? text_.sentences[middle]
                                       : first + 1 + random.below(static_cast<uint32_t>(last - first - 1));
    add_pair(first, between, {between, last}, false, random);
    return end;
  }

  /// Sentences of another document, with at least `wanted` tokens if it has that many left.
  std::pair<uint64_t, uint64_t> elsewhere(uint64_t document, uint64_t wanted, RandomSequence& random) const {
    uint64_t other = random.below(static_cast<uint32_t>(text_.count() - 1));
    if (other >= document) ++other;
    const uint64_t begin = text_.documents[other], end = text_.documents[other + 1];
    const uint64_t first = begin + random.below(static_cast<uint32_t>(end - begin));
    uint64_t after = first + 1;
    while (after < end && tokens(first, after) < wanted) ++after;
    return {text_.sentences[first], text_.sentences[after]};
  }

  void add_pair(uint64_t begin, uint64_t end, std::pair<uint64_t, uint64_t> second, bool is_random,
                RandomSequence& random) {
    std::pair<uint64_t, uint64_t> first{begin, end};
    const auto size = [](const auto& range) { return range.second - range.first; };
    for (auto* range : {&first, &second})  // what is certain to be dropped
      if (size(*range) > 2 * uint64_t{longest_}) range->second = range->first + 2 * uint64_t{longest_};
    while (size(first) + size(second) > longest_) {
      auto& longer = size(first) > size(second) ? first : second;
      if (random.below(2) == 0)
        ++longer.first;
      else
        --longer.second;
    }
    pairs_.push_back({{first.first, static_cast<uint32_t>(size(first))},
                      {second.first, static_cast<uint32_t>(size(second))},
                      is_random});
  }

  uint64_t tokens(uint64_t begin, uint64_t end) const {
    return text_.sentences[end] - text_.sentences[begin];
  }

  const TokenText& text_;
  uint32_t longest_;  ///< number of tokens of a pair, without the special ones
  uint64_t seed_;
  std::vector<SentencePair> pairs_;
};

/// A token that is none of the special ones.
uint32_t word_of(uint32_t random, uint32_t vocabulary, const SpecialTokens& special) {
  uint32_t sorted[] = {special.pad, special.cls, special.sep, special.mask};
  std::ranges::sort(sorted);
  auto word = static_cast<uint32_t>(uint64_t{random} * (vocabulary - std::size(sorted)) >> 32);
  for (const uint32_t taken : sorted)
    if (word >= taken) ++word;
  return word;
}

}  // namespace

std::vector<SentencePair> pairs_of(const TokenText& text, uint32_t length, uint64_t seed) {
  if (text.count() < 2)
    throw Error(
        fmt::format("{}: {} document; half of the second sentences come from another one, so that at "
                    "least two are needed",
                    text.name, text.count()));
  return PairMaker(text, length, seed).all();
}

std::vector<Prediction> mask(std::span<uint32_t> tokens, uint32_t vocabulary, const SpecialTokens& special,
                             uint64_t seed, uint32_t epoch, uint64_t sequence) {
  const RandomStream random(seed, epoch, kMaskStream);
  const auto words = [&](uint32_t place) { return random.words(sequence << kPlaceBits | place); };
  std::vector<std::pair<uint32_t, uint32_t>> candidates;  // random word and place
  for (uint32_t place = 0; place < tokens.size(); ++place)
    if (!special.contains(tokens[place])) candidates.emplace_back(words(place)[0], place);
  const size_t count =
      std::min<size_t>(predictions_of(static_cast<uint32_t>(tokens.size())), candidates.size());
  std::ranges::nth_element(candidates, candidates.begin() + static_cast<int64_t>(count));
  std::vector<Prediction> predictions;
  for (size_t i = 0; i < count; ++i)
    predictions.push_back({candidates[i].second, tokens[candidates[i].second]});
  std::ranges::sort(predictions, {}, &Prediction::place);
  for (const Prediction& prediction : predictions) {
    const auto drawn = words(prediction.place);
    const auto percent = static_cast<uint32_t>(uint64_t{drawn[1]} * kAllPercent >> 32);
    if (percent < kMaskedPercent)
      tokens[prediction.place] = special.mask;
    else if (percent < kMaskedPercent + kReplacedPercent)
      tokens[prediction.place] = word_of(drawn[2], vocabulary, special);
  }
  return predictions;
}

}  // namespace train

uint32_t predictions_of(uint32_t length) {
  return std::max(1U, static_cast<uint32_t>((uint64_t{3} * length + 10) / 20));
}

}  // namespace tessera
