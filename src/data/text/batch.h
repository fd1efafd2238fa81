// Batches of packs as arrays, sequence by sequence.
#pragma once

#include <tessera/packing.h>
#include <tessera/pretraining.h>

#include <cstdint>
#include <span>

#include "data/text/pairs.h"

namespace tessera::train {

/// A batch of packs of a packing, with room for the pack with the most sequences and that with the most
/// predictions.
graph::BertBatch shape_of(const pack::Packing& packing, uint32_t packs);

/// A batch of padding alone.
PretrainingBatch padding_of(const graph::BertBatch& shape, uint32_t pad);

/// A sequence's place in a batch: the `number`th of its pack, counted from 0, from token `start` on.
struct SequenceInPack {
  uint32_t pack = 0;
  uint32_t number = 0;
  uint32_t start = 0;
  uint32_t length = 0;
};

/// Adds a sequence whose second part begins at its token `second`, and returns its tokens, which the caller
/// sets.
std::span<uint32_t> place_sequence(PretrainingBatch& batch, const SequenceInPack& place, uint32_t second);

/// Sets the labels of a sequence that was added. `slot` is the number of predictions that its pack has so
/// far, and is advanced.
void place_labels(PretrainingBatch& batch, const SequenceInPack& place, bool second_is_random,
                  std::span<const Prediction> predictions, uint32_t& slot);

}  // namespace tessera::train
