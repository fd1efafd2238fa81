#include "studies/packing/training_cell.h"

#include <tessera/error.h>

#include <algorithm>
#include <chrono>
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

/// The fastest of a few runs.
double step_seconds(graph::Session& session, const std::vector<graph::Tensor>& arrays) {
  constexpr int kRuns = 3;
  double least = run_seconds(session, arrays);
  for (int i = 1; i < kRuns; ++i) least = std::min(least, run_seconds(session, arrays));
  return least;
}

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

double seconds_per_pack(const graph::BertConfig& config, const pack::Packing& packing, size_t steps,
                        uint32_t threads) {
  constexpr uint32_t kPacksOfStep = 2;
  PretrainingSettings settings;
  settings.config = config;
  const graph::BertBatch shape{.packs = kPacksOfStep,
                               .tokens = packing.max_length,
                               .sequences = static_cast<uint32_t>(packing.depths().size() - 1),
                               .predictions = train::most_predictions_of(packing)};
  graph::Session session(train::pretraining_graph(settings, shape), Machine::host(threads), {.seed = kSeed});
  const std::vector<PackLengths> packs = sample_packs(packing, steps * kPacksOfStep);
  uint32_t step = 1;
  float lr = 1e-4F, loss = 0, masked_lm = 0, next_sentence = 0;
  double total = 0;
  for (size_t i = 0; i < steps; ++i) {
    // One of few sequences with one of many, so that all steps take about as long.
    const std::vector<PackLengths> of_step = {packs[i], packs[packs.size() - 1 - i]};
    PretrainingBatch batch = random_batch(of_step, shape, config.vocab_size);
    std::vector<graph::Tensor> arrays = batch.arrays();
    arrays.insert(arrays.end(), {{train::kDropoutStep, &step},
                                 {"lr", &lr},
                                 {"step", &step},
                                 {train::kLoss, &loss},
                                 {train::kMaskedLmLoss, &masked_lm},
                                 {train::kNextSentenceLoss, &next_sentence}});
    arrays = train::taken_by(session.graph(), std::move(arrays));
    if (i == 0) session.run(arrays);
    total += step_seconds(session, arrays);
  }
  return total / static_cast<double>(packs.size());
}

}  // namespace tessera::studies::packing
