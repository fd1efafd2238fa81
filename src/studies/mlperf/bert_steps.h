// Steps of BERT-large as Graphcore trained it for MLPerf, on modelled pods.
#pragma once

#include <tessera/bert.h>
#include <tessera/pretraining.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "studies/paper/study.h"

namespace tessera::studies::mlperf {

inline constexpr std::string_view kSteps = "bert-steps";

/// How a pod trains BERT-large.
struct BertSetup {
  std::string name;     ///< "v1.0 POD16"
  std::string machine;  ///< "pod16"
  uint32_t replicas = 1;
  uint32_t micro_batches = 1;  ///< of a replica
  uint32_t packs = 2;          ///< of a micro-batch
  std::string numbers = "mlperf-v1";
  bool offload = false;  ///< whether the optimizer's state is off chip
  /// Layers of each stage, or their attention parts where feed_forwards has the others.
  std::vector<uint32_t> layers = {};
  std::vector<uint32_t> feed_forwards = {};
  uint32_t head_layers = 0, head_feed_forwards = 0;  ///< with the prediction of masked tokens
  bool is_assumed = false;  ///< whether it is no configuration of a submission, but continues one

  uint32_t chips() const { return replicas * static_cast<uint32_t>(layers.size()); }
  uint32_t packs_of_step() const { return replicas * micro_batches * packs; }
  /// Sequences of a step, at two in a pack, as the configurations count them.
  uint32_t listed_batch() const { return 2 * packs_of_step(); }
};

/// The setups of POD16 to POD256: in v1.0 with GC200 chips, in v2.0 with Bow chips.
const std::vector<BertSetup>& bert_setups();
/// The setup of that name; null: there is none.
const BertSetup* find_setup(std::string_view name);
/// The setup with which a round trained on `chips` chips; v1.1 as v1.0. Null: there is none.
const BertSetup* setup_of(std::string_view round, uint32_t chips);

/// A pack of at most this number of sequences, with 76 predictions and one more per sequence, as in the
/// submissions; a padded sequence has 76.
graph::BertBatch pack_of(uint32_t sequences, uint32_t packs);

/// Sequences of a pack of the submissions, at most.
inline constexpr uint32_t kSequencesOfPack = 3;

/// The settings of a setup, with BERT-large or another model.
PretrainingSettings settings_of(const BertSetup& setup,
                                const graph::BertConfig& config = graph::BertConfig::named("large"));

/// Bytes of all inputs of a step, integers of 32 bits.
uint64_t input_bytes(const graph::BertBatch& step);

/// Forward products and attention of a step, in operations; backward passes take twice as many.
double forward_flops(const graph::BertConfig& config, const graph::BertBatch& step);

/// A step composed of estimates of networks of few layers, each on a stage of its own: "seconds",
/// "tile_bytes", "streaming_bytes" of a chip, "lacking_tile_bytes". Layers are not divided into parts.
Result extrapolate_step(const BertSetup& setup, uint32_t sequences, const PretrainingSettings& settings);

/// The step of the whole network: also "stash_bytes", "optimizer_bytes" and "total_bytes" of a replica, and
/// "host_bytes" and "host_seconds" of its transfers, which "seconds" does not include.
Result estimate_step(const BertSetup& setup, uint32_t sequences, const PretrainingSettings& settings);

/// The cell of the whole or of the extrapolated step.
Cell cell_of_step(const BertSetup& setup, uint32_t sequences, bool is_whole);

/// A modelled step, and whether it is of the whole network.
struct ModelledStep {
  double seconds = 0;  ///< without transfers from the host
  bool is_whole = false;
  const Result* result = nullptr;
};
/// The step of the whole network, otherwise the extrapolated step; none: neither was run.
std::optional<ModelledStep> step_of(const Study& study, const BertSetup& setup);
/// The extrapolated step, which exists for all packs; none: it was not run.
std::optional<ModelledStep> extrapolated_step_of(const Study& study, const BertSetup& setup,
                                                 uint32_t sequences);

/// Seconds of the transfers of a step's inputs over the links to a machine's hosts.
double host_seconds(const BertSetup& setup, uint32_t sequences = kSequencesOfPack);

}  // namespace tessera::studies::mlperf
