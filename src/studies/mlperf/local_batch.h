// Micro-batches of BERT of several sizes, in a pipeline of two stages.
#pragma once

#include <tessera/bert.h>

#include <cstdint>

#include "studies/paper/study.h"

namespace tessera::studies::mlperf {

struct LocalBatch {
  uint32_t packs = 1;
  bool recomputes = true;  ///< whether backward passes keep only the inputs of layers
};

/// A step on two replicas of two chips: "stash_bytes" of a replica, "tile_bytes" of the fullest tile,
/// "pass_seconds" of a micro-batch on the first chip, and "once_seconds" of sums over replicas and updates.
Result estimate_local_batch(const graph::BertConfig& config, const LocalBatch& batch);

/// The fraction of a step of `micro_batches` micro-batches that it spends on work done once per step.
double update_share(const Result& result, uint32_t micro_batches);

}  // namespace tessera::studies::mlperf
