// Pairs of sentences, as BERT is trained with them, and which of their tokens are masked.
#pragma once

#include <tessera/token_text.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::train {

inline constexpr uint32_t kSpecialPerPair = 3;  ///< [CLS] A [SEP] B [SEP]

/// Tokens [begin, begin + length) of a text.
struct TokenRange {
  uint64_t begin = 0;
  uint32_t length = 0;
};

struct SentencePair {
  TokenRange first, second;
  bool is_random = false;  ///< whether the second part is of another document

  uint32_t length() const { return first.length + second.length + kSpecialPerPair; }
};

/// The pairs of all documents, of at most `length` tokens with the special ones. A piece of a document is the
/// sentences up to that length, or for one in ten pieces up to a shorter one; it is divided between two
/// sentences, or a single sentence between two tokens. What a random second part replaces begins the next
/// piece. Pairs that are too long lose tokens at the ends of their longer part.
std::vector<SentencePair> pairs_of(const TokenText& text, uint32_t length, uint64_t seed);

/// A token to be predicted: its place in the sequence, and what it is.
struct Prediction {
  uint32_t place = 0;
  uint32_t label = 0;
};

/// Masks tokens of a sequence, except special ones, and returns them in the order of their places:
/// predictions_of() the length, or all if there are fewer. The choice depends on the seed, the epoch, the
/// sequence's number and the place alone.
std::vector<Prediction> mask(std::span<uint32_t> tokens, uint32_t vocabulary, const SpecialTokens& special,
                             uint64_t seed, uint32_t epoch, uint64_t sequence);

}  // namespace tessera::train
