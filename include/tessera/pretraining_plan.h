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

/// What a division of a step costs.
struct PretrainingCost {
  double seconds = 0;               ///< of a step
  uint64_t fullest_tile_bytes = 0;  ///< of a step; of an estimate, or of evaluation if that needs more
  bool fits = false;
  std::string overflow = {};             ///< of an estimate: what does not fit
  uint64_t streaming_bytes = 0;          ///< of the chip that has most in its streaming memory
  uint64_t lacking_tile_bytes = 0;       ///< that the fullest tile needs beyond its memory
  uint64_t lacking_streaming_bytes = 0;  ///< that this chip needs beyond its streaming memory

  /// Without figures there is no estimate, and `overflow` says why: an operation alone does not fit, or the
  /// machine cannot be divided so.
  bool has_figures() const { return fullest_tile_bytes != 0; }
};

/// A way to divide a step into replicas, stages with their layers, micro-batches, in an order, and slices of
/// the head, with or without recomputation, sharding and offload.
struct PretrainingDivision {
  PretrainingSettings settings = {};                 ///< of a training that is divided so
  std::optional<PretrainingCost> extrapolated = {};  ///< from estimates of small networks
  std::optional<PretrainingCost> estimated = {};     ///< of the whole network, as BertTrainer::for_estimates
};

struct PretrainingPlanOptions {
  uint32_t estimates = 6;        ///< of whole networks, at most
  bool compare = false;          ///< estimate the division of the settings first, beside these; it does not
                                 ///< fit a machine that cannot be divided so
  double margin = 0.02;          ///< whole networks are estimated that are slower than the fastest that fits
                                 ///< by this fraction at most, extrapolated
  uint32_t chips_per_stage = 2;  ///< of stages and replicas, at most, where fewer do not suffice
  uint64_t large = kLargeValue;  ///< elements of parameters that are sharded or offloaded, at least
  uint32_t head_slices = 4;      ///< beside 1, unless the settings have several
  uint32_t threads = 0;          ///< see Trainer; with more than one, two networks are estimated side by side
  /// Seconds, beside those for the division of the settings, after which no estimate begins; after half of
  /// them, none of a small network. A division is extrapolated, and one estimated, in any case. 0: no limit.
  double time_limit = 0;
  /// Called before each estimate, with the number of those before it, the most there may be, and its name;
  /// the search ends with what it has found if it returns false.
  std::function<bool(size_t done, size_t most, const std::string& next)> progress = {};
};

struct PretrainingPlan {
  /// Divisions than which, extrapolated, none is both faster and smaller; the fastest first.
  std::vector<PretrainingDivision> frontier = {};
  std::vector<PretrainingDivision> estimated = {};  ///< whole, in their order
  std::optional<size_t> chosen = {};                ///< of those estimated, the fastest that fits
  std::string overflow = {};     ///< if none fits: by how much the closest does not, and what
  uint64_t considered = 0;       ///< number of divisions
  uint64_t small_estimates = 0;  ///< number of small networks that were estimated
  uint64_t tile_bytes = 0;       ///< memory of a tile
  bool stopped = false;          ///< by PretrainingPlanOptions::progress
  bool out_of_time = false;      ///< whether estimates were left out for PretrainingPlanOptions::time_limit
};

/// Searches the fastest division of a step that fits a modelled machine, for the packs of a step that the
/// settings have; how they divide it counts with PretrainingPlanOptions::compare only.
///
/// Layers are equal, so few small networks tell what all divisions take: those of one and of two layers on
/// each of two stages (and on one), for each number of packs in a micro-batch, with and without
/// recomputation. Extrapolated linearly in layers are the time of a pass, that of updates and reductions, and
/// the bytes of the fullest tile; the time of a step follows from the order of the passes, and stashes from
/// the micro-batches in flight. Where a division does not fit, but would be faster than those that do, it is
/// tried with what saves memory for time too: parameters divided among replicas, parameters, sums of
/// gradients and activations in streaming memory, and slices of the head, of which a pair of small networks
/// each tells what it changes; and no more of these together than fit. The most promising divisions are then
/// estimated whole, until no other can be faster than one that fits, by what is extrapolated.
///
/// Throws UsageError for hosts, several phases, and settings that BertTrainer refuses on any machine; Error
/// if there is no way to divide a step at all.
PretrainingPlan plan_pretraining(const PretrainingSettings& settings, const TextSplit& text,
                                 const Machine& machine, const PretrainingPlanOptions& options = {});

}  // namespace tessera
