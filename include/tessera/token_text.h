// Tokenised text: documents of sentences, their files, and their division.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

namespace train {
class TokensInFile;
}

/// The special tokens: they are never masked, and never replace a masked token.
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

/// The tokens of a text, in memory or in a file. From a file, only the tokens asked for are read, and no
/// tokens are kept in memory; the file stays open, and must not change. Copies share it. Several threads may
/// read at once.
class Tokens {
 public:
  /// Tokens [begin, end).
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  Tokens() = default;
  Tokens(std::vector<uint32_t> in_memory) : in_memory_(std::move(in_memory)) {}
  Tokens(std::initializer_list<uint32_t> in_memory) : in_memory_(in_memory) {}
  explicit Tokens(std::shared_ptr<const train::TokensInFile> in_file) : in_file_(std::move(in_file)) {}

  uint64_t size() const;
  bool empty() const { return size() == 0; }
  bool is_in_file() const { return in_file_ != nullptr; }
  /// All tokens, if they are in memory.
  std::span<const uint32_t> in_memory() const { return in_memory_; }

  /// Copies the tokens from `begin` on. Throws UsageError if there are fewer, Error if the file cannot be
  /// read, or has changed since it was opened.
  void read(uint64_t begin, std::span<uint32_t> out) const;
  /// A copy of all tokens. Throws as read() does, and Error if there is not enough memory.
  std::vector<uint32_t> all() const;
  /// An upper bound of the tokens. In memory it is the largest token, or 0 without tokens; for a file, or
  /// parts of it, the largest token of the file.
  uint32_t largest() const;
  /// The tokens of some ranges, one range after the other; a file is not read. Throws UsageError for ranges
  /// beyond the end.
  Tokens parts(std::span<const Range> ranges) const;

 private:
  std::vector<uint32_t> in_memory_;
  std::shared_ptr<const train::TokensInFile> in_file_;
};

/// Documents of sentences of tokens.
struct TokenText {
  std::string name;
  uint32_t vocabulary = 0;  ///< number of different tokens
  SpecialTokens special = {};
  Tokens tokens = {};                     ///< the tokens of all sentences, one after the other
  std::vector<uint64_t> sentences = {0};  ///< sentence i has the tokens sentences[i] to sentences[i + 1] − 1
  std::vector<uint64_t> documents = {
      0};  ///< document i has the sentences documents[i] to documents[i + 1] − 1

  uint64_t count() const { return documents.size() - 1; }  ///< number of documents
};

/// Throws Error, naming text and place, for tokens beyond the vocabulary, special tokens that are equal or
/// beyond it, empty sentences and documents, and sentence or document limits that do not fit the tokens.
void require_valid(const TokenText& text);

/// Opens a file of tokens, as Python's `tessera.text` and write_tokens() write it (docs/packing-bert.md).
/// Limits of sentences and documents are in memory, 8 bytes each; the tokens are read once, piece by piece,
/// to check them, and stay in the file. Throws Error, naming the file, if it is malformed or its text does
/// not pass require_valid().
TokenText read_tokens(const std::string& path);
/// Writes a file of tokens; an existing file is only replaced by a complete one. Throws as require_valid()
/// does.
void write_tokens(const std::string& path, const TokenText& text);

/// Random text: two of three tokens are drawn by Zipf's law, where the token of rank r has a probability in
/// proportion to 1 / (r + 1); the third is drawn uniformly from the document's topic, 50 neighbouring ranks.
struct SyntheticText {
  uint32_t vocabulary = 2000;
  uint32_t documents = 1000;
  uint64_t seed = 0;
};
/// Throws UsageError for numbers out of range, Error if there is not enough memory.
TokenText synthetic_text(const SyntheticText& settings = {});

/// Text for training, and text that is held out.
struct TextSplit {
  std::shared_ptr<const TokenText> train;
  std::shared_ptr<const TokenText> held_out;
};
/// Throws as require_valid() of both texts does, UsageError if a text is missing, and Error if their
/// vocabularies or special tokens differ.
void require_valid(const TextSplit& split);
/// Splits the documents of a text at random: round(fraction × documents) of them are held out, but at least
/// 2, and at least 2 are left for training. Throws UsageError unless the fraction is above 0 and below 1,
/// Error for fewer than 4 documents.
TextSplit split_text(const TokenText& text, double fraction, uint64_t seed);
/// Loads a file of tokens and splits it as split_text() does, or loads a folder with train.safetensors and
/// test.safetensors. Throws Error also if their vocabularies or special tokens differ.
TextSplit load_text(const std::string& path, double fraction, uint64_t seed);

}  // namespace tessera
