// Text of tokens, and packed batches of it for pre-training.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <tessera/error.h>
#include <tessera/pretraining.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

/// An array of integers as PyTorch's labels are: -100 is one that does not count.
nb::object rows_of(std::vector<uint32_t> values, uint32_t packs) {
  std::vector<int32_t> numbers(values.begin(), values.end());
  return nb::cast(rows_from(std::move(numbers), values.size() / packs));
}

nb::dict batch_of_packs(PretrainingData& data, uint32_t epoch, uint64_t first, uint32_t packs) {
  PretrainingBatch batch;
  {
    const nb::gil_scoped_release released;
    batch = data.batch(epoch, first, packs);
  }
  nb::dict arrays;
  for (auto [name, member] : {std::pair("input_ids", &PretrainingBatch::input_ids),
                              {"token_type_ids", &PretrainingBatch::token_type_ids},
                              {"position_ids", &PretrainingBatch::position_ids},
                              {"sequence_ids", &PretrainingBatch::sequence_ids},
                              {"masked_lm_positions", &PretrainingBatch::masked_lm_positions},
                              {"masked_lm_labels", &PretrainingBatch::masked_lm_labels},
                              {"cls_positions", &PretrainingBatch::cls_positions},
                              {"next_sentence_labels", &PretrainingBatch::next_sentence_labels}})
    arrays[name] = rows_of(std::move(batch.*member), packs);
  return arrays;
}

SpecialTokens special_of(const std::map<std::string, uint32_t>& named) {
  const auto of = [&](const char* which) {
    const auto found = named.find(which);
    if (found == named.end()) throw nb::value_error("special tokens are pad, cls, sep and mask");
    return found->second;
  };
  return {of("pad"), of("cls"), of("sep"), of("mask")};
}

std::map<std::string, uint32_t> named(const SpecialTokens& special) {
  return {{"pad", special.pad}, {"cls", special.cls}, {"sep", special.sep}, {"mask", special.mask}};
}

TokenText text_of(const std::string& name, uint32_t vocabulary,
                  const std::map<std::string, uint32_t>& special, nb::handle tokens, nb::handle sentences,
                  nb::handle documents) {
  TokenText text{.name = name,
                 .vocabulary = vocabulary,
                 .special = special_of(special),
                 .tokens = integers_of<uint32_t>(tokens, "tokens"),
                 .sentences = integers_of<uint64_t>(sentences, "sentences"),
                 .documents = integers_of<uint64_t>(documents, "documents")};
  try {
    require_valid(text);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return text;
}

/// The tokens as an array that cannot be written; of a file a copy.
Numbers<const uint32_t> tokens_of(nb::handle_t<TokenText> self) {
  const Tokens& tokens = nb::cast<TokenText&>(self).tokens;
  if (!tokens.is_in_file()) return view_of(tokens.in_memory(), self);
  auto* copy = new std::vector<uint32_t>(tokens.all());
  return view_of(std::span<const uint32_t>(*copy), keep(copy));
}

/// A vector of a text as an array that cannot be written: what it has is checked only once.
template <auto member>
auto numbers_of(nb::handle_t<TokenText> self) {
  return view_of(std::span(std::as_const(nb::cast<TokenText&>(self).*member)), self);
}

using TwoTexts = std::pair<std::shared_ptr<TokenText>, std::shared_ptr<TokenText>>;

TwoTexts two_texts(const TextSplit& parts) {
  return {std::const_pointer_cast<TokenText>(parts.train),
          std::const_pointer_cast<TokenText>(parts.held_out)};
}
TwoTexts split(const TokenText& text, double fraction, uint64_t seed) {
  return two_texts(split_text(text, fraction, seed));
}
TwoTexts load_two_texts(const std::string& path, double fraction, uint64_t seed) {
  return two_texts(load_text(path, fraction, seed));
}

void bind_token_text(nb::module_& m) {
  nb::class_<TokenText>(
      m, "TokenText",
      "Documents of sentences of tokens. Sentence i has the tokens sentences[i] to "
      "sentences[i + 1] - 1, and document i the sentences documents[i] to documents[i + 1] - 1.")
      .def(
          "__init__",
          [](TokenText* made, const std::string& name, uint32_t vocabulary,
             const std::map<std::string, uint32_t>& special, nb::handle tokens, nb::handle sentences,
             nb::handle documents) {
            new (made) TokenText(text_of(name, vocabulary, special, tokens, sentences, documents));
          },
          "name"_a, "vocabulary"_a, "special"_a, "tokens"_a, "sentences"_a, "documents"_a,
          nb::sig("def __init__(self, name: str, vocabulary: int, special: dict[str, int], tokens: object, "
                  "sentences: object, documents: object) -> None"))
      .def_ro("name", &TokenText::name)
      .def_ro("vocabulary", &TokenText::vocabulary, "Number of different tokens.")
      .def_prop_ro(
          "special", [](const TokenText& t) { return named(t.special); }, "The special tokens.")
      .def_prop_ro("tokens", &tokens_of, kOwned, "A read-only array; for text in a file, a copy.")
      .def_prop_ro("sentences", &numbers_of<&TokenText::sentences>, kOwned, "A read-only array.")
      .def_prop_ro("documents", &numbers_of<&TokenText::documents>, kOwned, "A read-only array.")
      .def(
          "save", [](const TokenText& text, const std::string& path) { write_tokens(path, text); }, "path"_a)
      .def_static(
          "load", &read_tokens, "path"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Open a file. Its tokens are read once to check them, stay in the file, and are read when a "
          "batch needs them; the file must not change meanwhile.")
      .def("split", &split, "fraction"_a = 0.05, "seed"_a = 0, nb::call_guard<nb::gil_scoped_release>(),
           "Split the text at random into a text for training and a held-out text with this fraction of the "
           "documents, at least two.");
  m.def("load_text", &load_two_texts, "path"_a, "fraction"_a, "seed"_a,
        nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "synthetic_text",
      [](uint32_t vocabulary, uint32_t documents, uint64_t seed) {
        return synthetic_text({vocabulary, documents, seed});
      },
      "vocabulary"_a = 2000, "documents"_a = 1000, "seed"_a = 0);
}

}  // namespace

void bind_text(nb::module_& m) {
  bind_token_text(m);
  nb::class_<PretrainingData>(m, "PretrainingData",
                              "The sequences [CLS] A [SEP] B [SEP] of a text, and their packs.")
      .def(
          "__init__",
          [](PretrainingData* made, const std::shared_ptr<TokenText>& text, uint32_t length, bool packed,
             uint32_t max_per_pack, uint64_t seed) {
            const nb::gil_scoped_release released;
            new (made) PretrainingData(text, {length, packed, max_per_pack, seed});
          },
          "text"_a, "length"_a = 128, "packed"_a = true, "max_per_pack"_a = 0, "seed"_a = 0)
      .def_prop_ro("sequences", &PretrainingData::sequences)
      .def_prop_ro("tokens", &PretrainingData::tokens, "Number of tokens of all sequences.")
      .def_prop_ro("packs", [](const PretrainingData& data) { return data.packing().packs(); })
      .def_prop_ro(
          "packing_factor", [](const PretrainingData& data) { return data.packing().packing_factor(); },
          "Mean number of sequences in a pack.")
      .def(
          "shape",
          [](const PretrainingData& data, uint32_t packs) {
            const graph::BertBatch shape = data.shape(packs);
            return std::map<std::string, uint32_t>{{"packs", packs},
                                                   {"tokens", shape.tokens},
                                                   {"sequences", shape.sequences},
                                                   {"predictions", shape.predictions}};
          },
          "packs"_a, "The sizes that bert_for_pretraining() takes for batches of this number of packs.")
      .def("batch", &batch_of_packs, "epoch"_a, "first"_a, "packs"_a,
           nb::sig("def batch(self, epoch: int, first: int, packs: int) -> dict[str, object]"),
           "The arrays of bert_for_pretraining() for packs `first`, first + 1, … of an epoch; packs beyond "
           "the "
           "epoch's last one are padding. The arrays are determined by the seed, the epoch and the packs' "
           "place in it. Several threads may call this at once.");
}

}  // namespace tessera::python
