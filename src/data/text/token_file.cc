#include "data/text/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/memory.h"
#include "base/parse_number.h"
#include "data/text/tokens_in_file.h"
#include "io/fail.h"
#include "io/safetensors.h"

namespace tessera {
namespace {

using io::fail;

constexpr const char* kFormat = "tessera tokens 1";
constexpr uint32_t kSmallestVocabulary = 8, kLargestVocabulary = 1 << 24;
constexpr uint32_t kMostOfTwoBytes = 1 << 16;

struct NamedSpecial {
  const char* name;
  uint32_t SpecialTokens::*token;
};
constexpr NamedSpecial kSpecial[] = {{"pad", &SpecialTokens::pad},
                                     {"cls", &SpecialTokens::cls},
                                     {"sep", &SpecialTokens::sep},
                                     {"mask", &SpecialTokens::mask}};

/// Throws unless limits begin with 0, grow, and end with the number of the elements that they divide.
void check_limits(const TokenText& text, const std::vector<uint64_t>& limits, uint64_t count,
                  const char* what, const char* of) {
  if (limits.empty() || limits.front() != 0) fail(text.name, "the limits of {}s do not begin with 0", what);
  for (size_t i = 1; i < limits.size(); ++i)
    if (limits[i] <= limits[i - 1])
      fail(text.name, "{} {} is [{}, {}): it is empty, or limits decrease", what, i - 1, limits[i - 1],
           limits[i]);
  if (limits.back() != count)
    fail(text.name, "the limits of {}s end at {}, and there are {} {}", what, limits.back(), count, of);
}

void check_special(const TokenText& text) {
  if (text.vocabulary < kSmallestVocabulary || text.vocabulary > kLargestVocabulary)
    fail(text.name, "a vocabulary of {} tokens; it has {} to {}", text.vocabulary, kSmallestVocabulary,
         kLargestVocabulary);
  for (const NamedSpecial& own : kSpecial) {
    const uint32_t token = text.special.*own.token;
    if (token >= text.vocabulary)
      fail(text.name, "the special token {} is {}, beyond the vocabulary of {}", own.name, token,
           text.vocabulary);
    for (const NamedSpecial& other : kSpecial)
      if (&other != &own && text.special.*other.token == token)
        fail(text.name, "the special tokens {} and {} are both {}", own.name, other.name, token);
  }
}

uint32_t number(const io::Source& source, const io::TensorMetadata& texts, const char* name) {
  const auto found = texts.find(name);
  if (found == texts.end()) fail(source.name(), "not a file of tokens: its metadata lacks '{}'", name);
  const auto value = base::parse_number<uint32_t>(found->second);
  if (!value)
    fail(source.name(), "its {} is {}; it must be a whole number", name, io::excerpt(found->second));
  return *value;
}

const io::TensorInfo& tensor(const io::Source& source, const std::vector<io::TensorInfo>& tensors,
                             const char* name) {
  const auto found = std::ranges::find(tensors, name, &io::TensorInfo::name);
  if (found == tensors.end()) fail(source.name(), "not a file of tokens: it lacks the tensor '{}'", name);
  if (found->shape.size() != 1)
    fail(source.name(), "the tensor '{}' has {} dimensions; it must have one", name, found->shape.size());
  return *found;
}

std::vector<uint64_t> limits(const io::Source& source, const std::vector<io::TensorInfo>& tensors,
                             const char* name) {
  const io::TensorInfo& info = tensor(source, tensors, name);
  if (info.dtype != "I64" && info.dtype != "U64")  // negative ones are too large
    fail(source.name(), "the tensor '{}' is of {}; it must be of I64", name, info.dtype);
  base::require_memory(info.end - info.begin, fmt::format("{}: the limits of {}", source.name(), name));
  std::vector<uint64_t> all((info.end - info.begin) / sizeof(uint64_t));
  source.read(info.begin, std::as_writable_bytes(std::span(all)));
  return all;
}

/// Throws if a token is beyond the vocabulary. A file's tokens are read again only to say which.
void check_tokens(const TokenText& text) {
  if (text.tokens.empty()) fail(text.name, "there are no tokens in it");
  if (text.tokens.largest() < text.vocabulary) return;
  train::for_pieces(text.tokens, [&](uint64_t first, std::span<const uint32_t> piece) {
    const auto beyond = std::ranges::find_if(piece, [&](uint32_t t) { return t >= text.vocabulary; });
    if (beyond != piece.end())
      fail(text.name, "token {} is {}, beyond the vocabulary of {}",
           first + static_cast<uint64_t>(beyond - piece.begin()), *beyond, text.vocabulary);
  });
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<uint32_t>& tokens) {
  const std::vector<T> values(tokens.begin(), tokens.end());
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

void require_valid(const TokenText& text) {
  check_special(text);
  check_tokens(text);
  check_limits(text, text.sentences, text.tokens.size(), "sentence", "tokens");
  check_limits(text, text.documents, text.sentences.size() - 1, "document", "sentences");
}

TokenText train::read_tokens(std::shared_ptr<const io::Source> of) {
  const io::Source& source = *of;
  io::TensorMetadata texts;
  const std::vector<io::TensorInfo> tensors = io::list_safetensors(source, &texts);
  if (const auto format = texts.find("format"); format == texts.end() || format->second != kFormat)
    fail(source.name(), "not a file of tokens ('{}'): write one with python -m tessera.text", kFormat);
  TokenText text{.name = source.name(), .vocabulary = number(source, texts, "vocabulary")};
  for (const NamedSpecial& special : kSpecial)
    text.special.*special.token = number(source, texts, special.name);
  const io::TensorInfo& tokens = tensor(source, tensors, "tokens");
  if (tokens.dtype != "U16" && tokens.dtype != "U32")
    fail(source.name(), "the tensor 'tokens' is of {}; it must be of U16 or U32", tokens.dtype);
  text.tokens = Tokens(std::make_shared<const TokensInFile>(std::move(of), tokens));
  text.sentences = limits(source, tensors, "sentences");
  text.documents = limits(source, tensors, "documents");
  require_valid(text);
  return text;
}

TokenText read_tokens(const std::string& path) {
  return train::read_tokens(std::make_shared<const io::Source>(io::Source::open(path)));
}

void write_tokens(const std::string& path, const TokenText& text) {
  require_valid(text);
  const bool two_bytes = text.vocabulary <= kMostOfTwoBytes;
  const std::vector<std::byte> tokens =
      two_bytes ? bytes_of<uint16_t>(text.tokens.all()) : bytes_of<uint32_t>(text.tokens.all());
  io::TensorMetadata texts = {{"format", kFormat}, {"vocabulary", fmt::format("{}", text.vocabulary)}};
  for (const NamedSpecial& special : kSpecial)
    texts[special.name] = fmt::format("{}", text.special.*special.token);
  const io::TensorData tensors[] = {
      {"tokens", two_bytes ? "U16" : "U32", {text.tokens.size()}, tokens},
      {"sentences", "I64", {text.sentences.size()}, std::as_bytes(std::span(text.sentences))},
      {"documents", "I64", {text.documents.size()}, std::as_bytes(std::span(text.documents))}};
  io::write_safetensors(path, tensors, texts);
}

}  // namespace tessera
