#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/token_text.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "data/samples.h"

namespace tessera {
namespace {

constexpr uint64_t kFewest = 2;  // documents: a pair may take two

/// The text of some documents.
std::shared_ptr<const TokenText> part_of(const TokenText& text, const std::vector<uint32_t>& documents) {
  TokenText part{.name = text.name, .vocabulary = text.vocabulary, .special = text.special};
  std::vector<Tokens::Range> ranges;
  for (const uint32_t document : documents) {
    const uint64_t first = text.documents[document], last = text.documents[document + 1];
    const uint64_t from = text.sentences[first], to = part.sentences.back();
    for (uint64_t s = first; s < last; ++s) part.sentences.push_back(to + text.sentences[s + 1] - from);
    part.documents.push_back(part.sentences.size() - 1);
    ranges.push_back({from, text.sentences[last]});
  }
  part.tokens = text.tokens.parts(ranges);
  return std::make_shared<const TokenText>(std::move(part));
}

std::string text_of(const SpecialTokens& s) {
  return fmt::format("[PAD] {}, [CLS] {}, [SEP] {} and [MASK] {}", s.pad, s.cls, s.sep, s.mask);
}

/// `where` begins the message.
void require_same_vocabulary(const TextSplit& split, const std::string& where) {
  const TokenText &train = *split.train, &held_out = *split.held_out;
  if (train.vocabulary != held_out.vocabulary)
    throw Error(
        fmt::format("{}: the vocabularies of the texts for training and held out differ, {} and {} tokens; "
                    "make both with the same",
                    where, train.vocabulary, held_out.vocabulary));
  if (train.special != held_out.special)
    throw Error(fmt::format(
        "{}: the special tokens of the texts for training and held out differ, {}, and {}; make both with "
        "the same vocabulary",
        where, text_of(train.special), text_of(held_out.special)));
}

}  // namespace

TextSplit split_text(const TokenText& text, double fraction, uint64_t seed) {
  if (!(fraction > 0 && fraction < 1))
    throw UsageError(
        fmt::format("the fraction of documents held out is {}; it must be above 0 and below 1", fraction));
  const uint64_t count = text.count();
  if (count < 2 * kFewest)
    throw Error(fmt::format("{}: {} documents; at least {} are needed, {} of them to be held out", text.name,
                            count, 2 * kFewest, kFewest));
  const double least = static_cast<double>(kFewest) / static_cast<double>(count);
  const train::Division division = train::divide(count, std::clamp(fraction, least, 1 - least), seed);
  return {part_of(text, division.training), part_of(text, division.validation)};
}

TextSplit load_text(const std::string& path, double fraction, uint64_t seed) {
  const std::filesystem::path place = path;
  if (!std::filesystem::is_directory(place)) return split_text(read_tokens(path), fraction, seed);
  TextSplit split;
  for (const auto& [name, text] :
       {std::pair("train.safetensors", &split.train), std::pair("test.safetensors", &split.held_out)}) {
    if (!std::filesystem::exists(place / name))
      throw Error(
          fmt::format("{}: it lacks {}; expected are train.safetensors and test.safetensors, as python "
                      "-m tessera.text writes them, or name one such file",
                      path, name));
    *text = std::make_shared<const TokenText>(read_tokens((place / name).string()));
  }
  require_same_vocabulary(split, path);
  return split;
}

void require_valid(const TextSplit& split) {
  if (split.train == nullptr || split.held_out == nullptr)
    throw UsageError("a split of text lacks its text for training, or what is held out; give both");
  require_valid(*split.train);
  require_valid(*split.held_out);
  require_same_vocabulary(split, split.train->name);
}

}  // namespace tessera
