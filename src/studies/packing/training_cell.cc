#include "studies/packing/training_cell.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/random.h"
#include "data/text/batch.h"
#include "data/text/pairs.h"
#include "studies/paper/measure_session.h"
#include "train/bert/network.h"
#include "train/network.h"

namespace tessera::studies::packing {
namespace {

constexpr uint64_t kSeed = 1;

PackLengths lengths_of(const pack::Strategy& strategy) {
  PackLengths lengths;
  for (const pack::Part& part : strategy.parts) lengths.insert(lengths.end(), part.copies, part.length);
  return lengths;
}

constexpr uint32_t kPacksOfStep = 2;

/// Steps on packs, which can be run again and again.
class Steps {
 public:
  Steps(const graph::BertConfig& config, const pack::Packing& packing, size_t steps, uint32_t threads)
      : shape_(train::shape_of(packing, kPacksOfStep)),
        session_(train::pretraining_graph(settings_of(config), shape_), Machine::host(threads),
                 {.seed = kSeed}),
        fastest_(steps, std::numeric_limits<double>::infinity()) {
    const std::vector<PackLengths> packs = sample_packs(packing, steps * kPacksOfStep);
    for (size_t i = 0; i < steps; ++i) {
      // Combines packs of few and of many sequences, so that all steps take about the same time.
      const std::vector<PackLengths> of_step = {packs[i], packs[packs.size() - 1 - i]};
      batches_.push_back(random_batch(of_step, shape_, config.vocab_size));
    }
  }

  void run(size_t step) {
    std::vector<graph::Tensor> arrays = batches_[step].arrays();
    arrays.insert(arrays.end(), {{train::kDropoutStep, &number_},
                                 {"lr", &lr_},
                                 {"step", &number_},
                                 {train::kLoss, &loss_},
                                 {train::kMaskedLmLoss, &masked_lm_},
                                 {train::kNextSentenceLoss, &next_sentence_}});
    arrays = train::taken_by(session_.graph(), std::move(arrays));
    fastest_[step] = std::min(fastest_[step], run_seconds(session_, arrays));
  }

  /// Mean over the steps of the fastest run of each.
  double seconds_per_pack() const {
    return std::accumulate(fastest_.begin(), fastest_.end(), 0.0) /
           static_cast<double>(fastest_.size() * kPacksOfStep);
  }

 private:
  static PretrainingSettings settings_of(const graph::BertConfig& config) {
    PretrainingSettings settings;
    settings.config = config;
    return settings;
  }

  graph::BertBatch shape_;
  graph::Session session_;
  std::vector<PretrainingBatch> batches_;
  std::vector<double> fastest_;
  uint32_t number_ = 1;
  float lr_ = 1e-4F, loss_ = 0, masked_lm_ = 0, next_sentence_ = 0;
};

}  // namespace

std::vector<PackLengths> sample_packs(const pack::Packing& packing, size_t count) {
  std::vector<const pack::Strategy*> ordered;
  for (const pack::Strategy& strategy : packing.strategies) ordered.push_back(&strategy);
  std::ranges::stable_sort(ordered, {}, [](const pack::Strategy* strategy) {
    return std::tuple(strategy->depth(), strategy->tokens());
  });
  std::vector<PackLengths> packs;
  const auto distance = static_cast<double>(packing.packs()) / static_cast<double>(count);
  double begin = 0;
  for (const pack::Strategy* strategy : ordered) {
    const double end = begin + static_cast<double>(strategy->count);
    while (packs.size() < count && (static_cast<double>(packs.size()) + 0.5) * distance < end)
      packs.push_back(lengths_of(*strategy));
    begin = end;
  }
  return packs;
}

PretrainingBatch random_batch(std::span<const PackLengths> packs, const graph::BertBatch& shape,
                              uint32_t vocabulary) {
  const SpecialTokens special = {.pad = 0, .cls = 1, .sep = 2, .mask = 3};
  base::RandomSequence random{base::RandomStream(kSeed)};
  PretrainingBatch batch = train::padding_of(shape, special.pad);
  batch.packs = packs.size();
  for (uint32_t pack = 0; pack < packs.size(); ++pack) {
    train::SequenceInPack place{.pack = pack};
    uint32_t slot = 0;
    for (const uint32_t length : packs[pack]) {
      place.length = length;
      const std::span<uint32_t> ids = train::place_sequence(batch, place, length / 2);
      for (uint32_t& id : ids) id = special.mask + 1 + random.below(vocabulary - special.mask - 1);
      ids.front() = special.cls;
      train::place_labels(batch, place, random.below(2) == 1,
                          train::mask(ids, vocabulary, special, kSeed, 0, batch.sequences), slot);
      place.start += length;
      ++place.number;
    }
    batch.predictions += slot;
  }
  return batch;
}

SecondsPerPack measure_training(const graph::BertConfig& config, const pack::Packing& packing,
                                const pack::Packing& padded, size_t steps, uint32_t threads) {
  constexpr int kRuns = 4;
  Steps of_packs(config, packing, steps, threads), of_padded(config, padded, steps, threads);
  for (int run = 0; run < kRuns; ++run)
    for (size_t i = 0; i < steps; ++i) {
      of_packs.run(i);
      of_padded.run(i);
    }
  return {of_packs.seconds_per_pack(), of_padded.seconds_per_pack()};
}

}  // namespace tessera::studies::packing
