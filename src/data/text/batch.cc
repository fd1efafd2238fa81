#include "data/text/batch.h"

#include <algorithm>

namespace tessera::train {

namespace {

uint32_t most_predictions_of(const pack::Packing& packing) {
  uint32_t most = 0;
  for (const pack::Strategy& strategy : packing.strategies) {
    uint32_t own = 0;
    for (const pack::Part& part : strategy.parts) own += part.copies * predictions_of(part.length);
    most = std::max(most, own);
  }
  return most;
}

}  // namespace

graph::BertBatch shape_of(const pack::Packing& packing, uint32_t packs) {
  return {.packs = packs,
          .tokens = packing.max_length,
          .sequences = static_cast<uint32_t>(packing.depths().size() - 1),
          .predictions = most_predictions_of(packing)};
}

PretrainingBatch padding_of(const graph::BertBatch& shape, uint32_t pad) {
  PretrainingBatch batch{.shape = shape};
  const size_t tokens = size_t{shape.packs} * shape.tokens;
  batch.input_ids.assign(tokens, pad);
  for (auto* array : {&batch.token_type_ids, &batch.position_ids, &batch.sequence_ids}) array->resize(tokens);
  batch.masked_lm_positions.resize(size_t{shape.packs} * shape.predictions);
  batch.masked_lm_labels.assign(batch.masked_lm_positions.size(), graph::kIgnoredLabel);
  batch.cls_positions.resize(size_t{shape.packs} * shape.sequences);
  batch.next_sentence_labels.assign(batch.cls_positions.size(), graph::kIgnoredLabel);
  return batch;
}

std::span<uint32_t> place_sequence(PretrainingBatch& batch, const SequenceInPack& place, uint32_t second) {
  const size_t at = size_t{place.pack} * batch.shape.tokens + place.start;
  for (uint32_t i = 0; i < place.length; ++i) {
    batch.token_type_ids[at + i] = i < second ? 0 : 1;
    batch.position_ids[at + i] = i;
    batch.sequence_ids[at + i] = place.number + 1;
  }
  batch.cls_positions[size_t{place.pack} * batch.shape.sequences + place.number] = place.start;
  batch.tokens += place.length;
  ++batch.sequences;
  return std::span(batch.input_ids).subspan(at, place.length);
}

void place_labels(PretrainingBatch& batch, const SequenceInPack& place, bool second_is_random,
                  std::span<const Prediction> predictions, uint32_t& slot) {
  const size_t of_pack = size_t{place.pack} * batch.shape.predictions;
  for (const Prediction& prediction : predictions) {
    batch.masked_lm_positions[of_pack + slot] = place.start + prediction.place;
    batch.masked_lm_labels[of_pack + slot] = prediction.label;
    ++slot;
  }
  batch.next_sentence_labels[size_t{place.pack} * batch.shape.sequences + place.number] =
      second_is_random ? 1 : 0;
}

}  // namespace tessera::train
