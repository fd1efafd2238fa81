// Tokens that stay in their file.
#pragma once

#include <tessera/token_text.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/safetensors.h"
#include "io/source.h"

namespace tessera::train {

/// The tokens of a file, or ranges of them one after the other.
class TokensInFile {
 public:
  /// The tokens of a tensor of U16 or U32, all of which are read once. Throws Error if that fails.
  TokensInFile(std::shared_ptr<const io::Source> source, const io::TensorInfo& tensor);
  /// Ranges of the tokens of `whole`, which must lie within them.
  TokensInFile(const TokensInFile& whole, std::span<const Tokens::Range> ranges);

  uint64_t size() const { return size_; }
  /// The largest token of the file.
  uint32_t largest() const { return largest_; }
  /// Copies existing tokens from `begin` on. Throws Error if they cannot be read, or one is larger than when
  /// the file was opened.
  void read(uint64_t begin, std::span<uint32_t> out) const;

 private:
  /// Tokens from `begin` to the next segment are the tensor's from `in_file` on.
  struct Segment {
    uint64_t begin = 0;
    uint64_t in_file = 0;
  };
  /// Tokens of the tensor that follow one another.
  struct Run {
    uint64_t in_file = 0;
    uint64_t count = 0;
  };

  /// The longest run from a token on.
  Run run_from(uint64_t token) const;
  void add(const Run& run);
  void read_run(uint64_t in_file, std::span<uint32_t> out) const;

  std::shared_ptr<const io::Source> source_;
  uint64_t first_byte_ = 0;
  uint32_t bytes_per_token_ = 0;
  uint32_t largest_ = UINT32_MAX;
  uint64_t size_ = 0;
  std::vector<Segment> segments_;
};

/// Calls f(index of the first token, tokens) for pieces of Tokens or TokensInFile, in order. All but the last
/// have equal lengths, a power of two.
template <class Source, class F>
void for_pieces(const Source& tokens, const F& f) {
  constexpr uint64_t kPiece = 1 << 16;
  std::vector<uint32_t> piece;
  for (uint64_t first = 0; first < tokens.size(); first += kPiece) {
    piece.resize(std::min(kPiece, tokens.size() - first));
    tokens.read(first, piece);
    f(first, std::span<const uint32_t>(piece));
  }
}

}  // namespace tessera::train
