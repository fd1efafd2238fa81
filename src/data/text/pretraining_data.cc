#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/pretraining.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "base/random.h"
#include "data/text/batch.h"
#include "data/text/pairs.h"

namespace tessera {
namespace {

using train::SentencePair;

constexpr uint32_t kEpochStream = 0x74657803;
constexpr uint32_t kShortest = 8, kLongest = 1 << 20;

/// Throws unless text and settings are usable.
void check(const TokenText* text, const SequenceSettings& s) {
  if (!text) throw UsageError("a text is missing: sequences are made of one");
  if (s.length < kShortest || s.length > kLongest)
    throw UsageError(
        fmt::format("sequences of {} tokens; the length is {} to {}", s.length, kShortest, kLongest));
  require_valid(*text);
}

std::vector<uint32_t> lengths_of(const std::vector<SentencePair>& pairs) {
  std::vector<uint32_t> lengths;
  for (const SentencePair& pair : pairs) lengths.push_back(pair.length());
  return lengths;
}

pack::Packing packing_of(const SequenceSettings& s, const pack::Input& input) {
  if (s.packed) return pack::plan(input.histogram, {.max_per_pack = s.max_per_pack, .seed = s.seed});
  return pack::plan(input.histogram, {.algorithm = pack::Algorithm::lpfhp, .max_per_pack = 1});
}

}  // namespace

struct PretrainingData::Impl {
  /// Sequences in the order in which the packs of an epoch take them, and these packs.
  struct Epoch {
    uint32_t number = 0;
    std::vector<uint32_t> sequences;
    pack::PackIndex packs = {};
  };

  Impl(std::shared_ptr<const TokenText> source_text, const SequenceSettings& given)
      : source((check(source_text.get(), given), std::move(source_text))),
        text(*source),
        settings(given),
        pairs(train::pairs_of(text, given.length, given.seed)),
        lengths(lengths_of(pairs)),
        input(pack::count(pack::Lengths(std::span<const uint32_t>(lengths)), given.length)),
        packing(packing_of(given, input)),
        shape_of_pack(train::shape_of(packing, 1)) {
    if (pairs.size() > UINT32_MAX)
      throw Error(fmt::format("{}: {} sequences; there may be {}", text.name, pairs.size(), UINT32_MAX));
  }

  /// An epoch: the last one that was asked for, or made anew.
  std::shared_ptr<const Epoch> epoch(uint32_t number);
  void add_sequence(PretrainingBatch& batch, uint32_t pack, uint32_t number, uint32_t start,
                    uint64_t sequence, uint32_t epoch, uint32_t& slot) const;

  std::shared_ptr<const TokenText> source;
  const TokenText& text;
  SequenceSettings settings;
  std::vector<SentencePair> pairs;
  std::vector<uint32_t> lengths;
  pack::Input input;
  pack::Packing packing;
  graph::BertBatch shape_of_pack;
  std::mutex mutex;  ///< of `last`
  std::shared_ptr<const Epoch> last;
};

std::shared_ptr<const PretrainingData::Impl::Epoch> PretrainingData::Impl::epoch(uint32_t number) {
  const std::lock_guard lock(mutex);
  if (last && last->number == number) return last;
  const base::RandomStream random(settings.seed, number, kEpochStream);
  Epoch made{.number = number, .sequences = std::vector<uint32_t>(pairs.size())};
  std::iota(made.sequences.begin(), made.sequences.end(), 0U);
  base::RandomSequence(random).shuffle(made.sequences);
  std::vector<uint32_t> in_order;
  for (const uint32_t sequence : made.sequences) in_order.push_back(lengths[sequence]);
  const auto words = random.words(UINT64_MAX);  // further than the shuffle gets
  made.packs = pack::index_packs(packing, input, pack::Lengths(std::span<const uint32_t>(in_order)),
                                 {.shuffle = uint64_t{words[0]} << 32 | words[1]});
  return last = std::make_shared<const Epoch>(std::move(made));
}

void PretrainingData::Impl::add_sequence(PretrainingBatch& batch, uint32_t pack, uint32_t number,
                                         uint32_t start, uint64_t sequence, uint32_t epoch,
                                         uint32_t& slot) const {
  const SentencePair& pair = pairs[sequence];
  const uint32_t length = pair.length(), second = pair.first.length + 2;
  const train::SequenceInPack place{pack, number, start, length};
  const std::span<uint32_t> ids = train::place_sequence(batch, place, second);
  const auto copy = [&](const train::TokenRange& range, uint32_t to) {
    text.tokens.read(range.begin, ids.subspan(to, range.length));
  };
  ids[0] = text.special.cls;
  copy(pair.first, 1);
  ids[second - 1] = text.special.sep;
  copy(pair.second, second);
  ids[length - 1] = text.special.sep;
  train::place_labels(batch, place, pair.is_random,
                      train::mask(ids, text.vocabulary, text.special, settings.seed, epoch, sequence), slot);
}

PretrainingData::PretrainingData(std::shared_ptr<const TokenText> text, const SequenceSettings& settings)
    : impl_(std::make_unique<Impl>(std::move(text), settings)) {}
PretrainingData::~PretrainingData() = default;
PretrainingData::PretrainingData(PretrainingData&&) noexcept = default;
PretrainingData& PretrainingData::operator=(PretrainingData&&) noexcept = default;

const SequenceSettings& PretrainingData::settings() const { return impl_->settings; }
uint64_t PretrainingData::sequences() const { return impl_->pairs.size(); }
uint64_t PretrainingData::tokens() const { return impl_->input.tokens; }
const pack::Packing& PretrainingData::packing() const { return impl_->packing; }

graph::BertBatch PretrainingData::shape(uint32_t packs) const {
  if (packs == 0) throw UsageError("a batch of 0 packs; it has at least 1");
  graph::BertBatch shape = impl_->shape_of_pack;
  shape.packs = packs;
  return shape;
}

PretrainingBatch PretrainingData::batch(uint32_t epoch, uint64_t first, uint32_t packs) {
  const uint64_t all = impl_->packing.packs();
  if (first >= all) throw UsageError(fmt::format("pack {} of an epoch; it has {}", first, all));
  PretrainingBatch batch = train::padding_of(shape(packs), impl_->text.special.pad);
  const std::shared_ptr<const Impl::Epoch> of = impl_->epoch(epoch);
  batch.packs = std::min<uint64_t>(packs, all - first);
  for (uint32_t pack = 0; pack < batch.packs; ++pack) {
    const uint64_t begin = of->packs.offsets[first + pack], end = of->packs.offsets[first + pack + 1];
    uint32_t slot = 0;
    for (uint64_t entry = begin; entry < end; ++entry)
      impl_->add_sequence(batch, pack, static_cast<uint32_t>(entry - begin),
                          static_cast<uint32_t>(of->packs.start[entry]),
                          of->sequences[of->packs.sequence[entry]], epoch, slot);
    batch.predictions += slot;
  }
  return batch;
}

std::vector<graph::Tensor> PretrainingBatch::arrays() {
  return {{"input_ids", input_ids.data()},
          {"token_type_ids", token_type_ids.data()},
          {"position_ids", position_ids.data()},
          {"sequence_ids", sequence_ids.data()},
          {"masked_lm_positions", masked_lm_positions.data()},
          {"masked_lm_labels", masked_lm_labels.data()},
          {"cls_positions", cls_positions.data()},
          {"next_sentence_labels", next_sentence_labels.data()}};
}

}  // namespace tessera
