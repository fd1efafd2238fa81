// How a step of the pre-training of BERT is best divided among the chips of a modelled machine.
#pragma once

#include <tessera/machine.h>
#include <tessera/pretraining.h>
#include <tessera/token_text.h>
#include <tessera/training_settings.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// The cost of a division of a step.
struct PretrainingCost {
  double seconds = 0;               ///< time of a step
  uint64_t fullest_tile_bytes = 0;  ///< bytes in a step; in an estimate, in evaluation if that needs more
  bool fits = false;
  std::string overflow = {};             ///< in an estimate, what does not fit
  uint64_t streaming_bytes = 0;          ///< bytes in streaming memory of the chip that has most there
  uint64_t lacking_tile_bytes = 0;       ///< bytes that the fullest tile needs beyond its memory
  uint64_t lacking_streaming_bytes = 0;  ///< bytes that this chip needs beyond its streaming memory

  /// Without figures there is no estimate, and `overflow` says why: an operation alone does not fit, or the
  /// machine cannot be divided so.
  bool has_figures() const { return fullest_tile_bytes != 0; }
};

/// A way to divide a step into replicas, stages with their layers, micro-batches in the order of a pipeline,
/// and slices of the head, with or without recomputation, sharding and offload.
struct PretrainingDivision {
  PretrainingSettings settings = {};                 ///< settings of a training with this division
  std::optional<PretrainingCost> extrapolated = {};  ///< cost extrapolated from estimates of small networks
  /// Estimate of the whole network, as by BertTrainer::for_estimates.
  std::optional<PretrainingCost> estimated = {};
};

struct PretrainingPlanOptions {
  /// Maximum number of estimates of whole networks, besides one of a zb-h1 pipeline and one within a budget.
  uint32_t estimates = 6;
  bool compare = false;  ///< whether the division of the settings is estimated first, in addition; it counts
                         ///< as not fitting if the machine cannot be divided that way
  double margin = 0.02;  ///< whole networks are estimated if extrapolation says that they are slower than the
                         ///< fastest one that fits by at most this fraction
  /// Maximum number of chips per stage and replica, where fewer do not suffice.
  uint32_t chips_per_stage = 2;
  uint64_t large = kLargeValue;  ///< minimum number of elements of parameters that are sharded or offloaded
  uint32_t head_slices = 4;  ///< number of slices that is tried besides 1, unless the settings have several
  uint32_t threads = 0;      ///< see Trainer; with more than one, two networks are estimated side by side
  /// Seconds, besides the time for the division of the settings, after which no estimate begins; after half
  /// of this time, no estimate of a small network begins. At least one division is extrapolated, and at least
  /// one estimated. 0: no limit.
  double time_limit = 0;
  /// Called before each estimate, with the number of estimates done, the maximum number of estimates, and the
  /// name of the next one. If it returns false, the search ends with the divisions found so far.
  std::function<bool(size_t done, size_t most, const std::string& next)> progress = {};
};

struct PretrainingPlan {
  /// The Pareto frontier of the extrapolated divisions: no other one is both faster and smaller. The fastest
  /// comes first.
  std::vector<PretrainingDivision> frontier = {};
  /// Divisions estimated as whole networks, in the order of their estimates.
  std::vector<PretrainingDivision> estimated = {};
  /// Index in `estimated` of the fastest division that fits.
  std::optional<size_t> chosen = {};
  /// If none fits: what does not fit in the division that comes closest, and by how much.
  std::string overflow = {};
  uint64_t considered = 0;       ///< number of divisions
  uint64_t small_estimates = 0;  ///< number of small networks that were estimated
  uint64_t tile_bytes = 0;       ///< memory of a tile
  bool stopped = false;          ///< whether PretrainingPlanOptions::progress ended the search
  bool out_of_time = false;      ///< whether estimates were left out for PretrainingPlanOptions::time_limit
};

/// Searches for the fastest division of a step that fits a modelled machine, for the number of packs per step
/// in the settings. The division in the settings is only used with PretrainingPlanOptions::compare.
///
/// Layers are equal, so a few small networks tell the costs of all divisions: networks with one and with two
/// layers on each of two stages (and on one stage), for each number of packs in a micro-batch, with and
/// without recomputation. Three costs are extrapolated linearly in the number of layers: the time of a pass,
/// the time of updates and reductions, and the bytes of the fullest tile. The time of a step follows from the
/// order of the passes, and the size of stashes from the number of micro-batches in flight. A division that
/// does not fit, but would be faster than the divisions that do, is also tried with measures that trade time
/// for memory: parameters divided among replicas; parameters, sums of gradients and activations in streaming
/// memory; and slices of the head. The effect of each measure is estimated with a pair of small networks, and
/// no more measures are combined than the memory requires. The most promising divisions are then estimated as
/// whole networks, until extrapolation says that no other division can be faster than one that fits. Of those
/// estimated, the fastest 1f1b pipeline is estimated once more as zb-h1, which extrapolation cannot compare,
/// if it is at most PretrainingPlanOptions::margin slower than the fastest division. If the fastest computes
/// all layers again, it is estimated once more with as few of them as fit (PlacementSettings::memory_budget).
///
/// Throws UsageError for the host, for several phases, for a margin or time limit that is negative or NaN,
/// and for settings that BertTrainer refuses on any machine; Error if there is no way to divide a step at
/// all.
PretrainingPlan plan_pretraining(const PretrainingSettings& settings, const TextSplit& text,
                                 const Machine& machine, const PretrainingPlanOptions& options = {});

}  // namespace tessera
