// The time of training steps of BERT on packs.
#pragma once

#include <tessera/packing.h>
#include <tessera/pretraining.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::studies::packing {

/// Lengths of the sequences of a pack.
using PackLengths = std::vector<uint32_t>;

/// `count` packs at equal distances in a list of all packs of a packing, which is ordered by their numbers of
/// sequences and of tokens.
std::vector<PackLengths> sample_packs(const pack::Packing& packing, size_t count);

/// A batch of these packs with random tokens and labels.
PretrainingBatch random_batch(std::span<const PackLengths> packs, const graph::BertBatch& shape,
                              uint32_t vocabulary);

struct SecondsPerPack {
  double packed = 0;
  double padded = 0;  ///< of one sequence, the rest padding
};

/// Times of `steps` different steps of BERT on the host, two packs each, on packs and on padded sequences in
/// turn: means over these steps of the fastest of several runs. Text is not read.
SecondsPerPack measure_training(const graph::BertConfig& config, const pack::Packing& packing,
                                const pack::Packing& padded, size_t steps, uint32_t threads);

}  // namespace tessera::studies::packing
