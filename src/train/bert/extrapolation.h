// The cost of a division of a step of BERT, composed of estimates of networks of few layers.
#pragma once

#include <tessera/bert.h>
#include <tessera/machine.h>
#include <tessera/pretraining.h>
#include <tessera/pretraining_plan.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

/// Bytes of a tile.
struct TileUse {
  uint64_t total = 0;
  uint64_t stash = 0;      ///< of `total`, for all micro-batches in flight
  uint64_t optimizer = 0;  ///< of `total`

  auto operator<=>(const TileUse&) const = default;
};

/// Time and memory of the chips of a stage.
struct StageUse {
  double pass = 0;                  ///< seconds of a micro-batch, forward and backward, with its predictions
  double collective = 0;            ///< seconds of a step
  double other = 0;                 ///< seconds of a step, such as updates
  uint32_t in_flight = 1;           ///< micro-batches
  double optimizer = 0;             ///< bytes of the optimizer's state, on all tiles
  double streaming = 0;             ///< bytes of the chip that has most in its streaming memory
  std::vector<TileUse> tiles = {};  ///< each once
};

/// The first stage has embeddings and predictions besides layers; further ones are alike.
struct SmallNetwork {
  StageUse first = {}, further = {};
};
/// With one and with two layers per stage.
struct SmallNetworks {
  SmallNetwork one = {}, two = {};
};

struct SmallNetworkKey {
  uint32_t stages = 1;
  uint32_t chips = 1;  ///< of each stage
  uint32_t packs = 1;  ///< of a micro-batch
  bool recompute = false;
  // At most one of these is set.
  bool offload_weights = false, offload_gradients = false, offload_activations = false;
  bool shard_weights = false;
  uint32_t head_slices = 1;

  auto operator<=>(const SmallNetworkKey&) const = default;
};

/// What a stage takes, or the difference between two.
struct StageCost {
  double pass = 0;       ///< seconds of a micro-batch
  double once = 0;       ///< seconds of a step besides
  double tile = 0;       ///< bytes of the fullest tile
  double streaming = 0;  ///< bytes in the streaming memory of a chip
};

/// The settings on one stage of one replica, with one micro-batch and nothing that saves memory.
PretrainingSettings undivided(PretrainingSettings settings);

/// Adds the bytes by which a cost exceeds the memory of a tile and of the chips' streaming memory.
PretrainingCost with_lack(PretrainingCost cost, const Machine& machine);

/// Layers are equal, so the cost of any number of layers follows from networks with one and two layers per
/// stage. Each way of saving memory is estimated alone, beside the same network without it, and the
/// differences are added.
class StepExtrapolation {
 public:
  /// Called before small networks are estimated, with their name; if it returns false, they are not
  /// estimated.
  using Begin = std::function<bool(const std::string& name)>;

  /// `settings` have the vocabulary of the text, and `shape` is the shape of one pack. Parameters of at least
  /// `large` elements are offloaded and divided.
  StepExtrapolation(const PretrainingSettings& settings, const graph::BertBatch& shape,
                    const Machine& machine, uint64_t large, uint32_t threads, Begin begin);

  /// None: operations of small networks alone take more than the available memory, or the networks were not
  /// estimated.
  std::optional<PretrainingCost> cost_of(const PretrainingSettings& settings);

  /// The small networks from which cost_of() is composed, beginning with those that save no memory.
  std::vector<SmallNetworkKey> keys_of(const PretrainingSettings& settings) const;
  uint64_t estimates() const { return estimates_; }

 private:
  /// The difference between two small networks, and the factors with which it counts.
  struct Difference {
    const SmallNetworks* without = nullptr;
    const SmallNetworks* with = nullptr;
    bool offloads_activations = false;
    double time = 1, tile = 1, streaming = 1;
  };

  uint32_t packs() const { return settings_.phases[0].packs; }
  uint32_t chips_of_stage(const PretrainingSettings& s) const {
    return machine_.chips() / (s.replicas * s.stages);
  }
  const SmallNetworks* networks(const SmallNetworkKey& key);
  void estimate(const SmallNetworkKey& key, std::optional<SmallNetworks>& small);
  SmallNetwork small_network(const SmallNetworkKey& key, uint32_t of_stage) const;
  Difference difference(const SmallNetworkKey& key, const PretrainingSettings& s) const;
  double rounds_of(const PretrainingSettings& s) const;
  StageCost cost_of_use(const StageUse& use, const PretrainingSettings& s, uint32_t in_flight) const;
  StageCost cost_of_stage(const SmallNetworks& small, const PretrainingSettings& s, uint32_t stage,
                          uint32_t in_flight) const;
  void add(const Difference& difference, const PretrainingSettings& s, uint32_t stage, StageCost& cost) const;
  PretrainingCost composed(const SmallNetworks& plain, const std::vector<Difference>& differences,
                           const PretrainingSettings& s) const;

  PretrainingSettings settings_;  ///< undivided
  graph::BertBatch shape_;
  const Machine& machine_;
  uint64_t large_;
  uint32_t threads_;
  Begin begin_;
  std::map<SmallNetworkKey, std::optional<SmallNetworks>> networks_;
  uint64_t estimates_ = 0;
};

}  // namespace tessera::train
