// Text of tokens: documents of sentences, their files, and their division.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// Tokens with a meaning of their own: they are never masked, and never stand in for a masked token.
struct SpecialTokens {
  uint32_t pad = 0;
  uint32_t cls = 101;
  uint32_t sep = 102;
  uint32_t mask = 103;

  bool contains(uint32_t token) const {
    return token == pad || token == cls || token == sep || token == mask;
  }
  bool operator==(const SpecialTokens&) const = default;
};

/// Documents of sentences of tokens.
struct TokenText {
  std::string name;
  uint32_t vocabulary = 0;  ///< number of tokens that there are
  SpecialTokens special = {};
  std::vector<uint32_t> tokens = {};      ///< of all sentences, one after the other
  std::vector<uint64_t> sentences = {0};  ///< sentence i has the tokens sentences[i] to sentences[i + 1] − 1
  std::vector<uint64_t> documents = {
      0};  ///< document i has the sentences documents[i] to documents[i + 1] − 1

  uint64_t count() const { return documents.size() - 1; }  ///< of documents
};

/// Throws Error, naming text and place, for tokens beyond the vocabulary, special tokens that are equal or
/// beyond it, empty sentences and documents, and limits that do not fit the tokens.
void require_valid(const TokenText& text);

/// Reads a file of tokens, as Python's `tessera.text` and write_tokens() write it (docs/packing-bert.md).
/// Throws Error, naming the file, if it is malformed or its text does not pass require_valid().
TokenText read_tokens(const std::string& path);
/// Writes one; an existing file is only replaced by a complete one. Throws as require_valid() does.
void write_tokens(const std::string& path, const TokenText& text);

/// Random text: two of three tokens are drawn by Zipf's law, that of rank r with a probability in proportion
/// to 1 / (r + 1), and one of three, uniformly, from 50 neighbouring ranks that a document has as its topic.
struct SyntheticText {
  uint32_t vocabulary = 2000;
  uint32_t documents = 1000;
  uint64_t seed = 0;
};
/// Throws UsageError for numbers out of range, Error if memory is short.
TokenText synthetic_text(const SyntheticText& settings = {});

/// Text for training, and text that is held out.
struct TextSplit {
  std::shared_ptr<const TokenText> train;
  std::shared_ptr<const TokenText> held_out;
};
/// Throws as require_valid() of both texts does, UsageError if one is missing, and Error if their
/// vocabularies or special tokens differ.
void require_valid(const TextSplit& split);
/// Documents of a text at random: round(fraction × documents) are held out, at least 2 and all but 2 at most.
/// Throws UsageError unless the fraction is above 0 and below 1, Error for fewer than 4 documents.
TextSplit split_text(const TokenText& text, double fraction, uint64_t seed);
/// A file of tokens, split so, or a folder with train.safetensors and test.safetensors. Throws Error also if
/// their vocabularies or special tokens differ.
TextSplit load_text(const std::string& path, double fraction, uint64_t seed);

}  // namespace tessera
