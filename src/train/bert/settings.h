// Settings of pre-training: limits, and their form in checkpoints.
#pragma once

#include <tessera/pretraining.h>

#include <nlohmann/json_fwd.hpp>

namespace tessera::train {

/// Throws UsageError that names the wrong setting, its value and its limits.
void check(const PretrainingSettings& settings);

/// The settings, checked, with the vocabulary of the text. Throws as check() and require_valid() do.
PretrainingSettings with_vocabulary(PretrainingSettings settings, const TextSplit& text);

/// Throws UsageError if a text has fewer packs than a step of the phase takes.
void check_packs(const PretrainingPhase& phase, uint64_t packs);

/// The numbers of a training, with the rounding, the types of sums and the loss scale that are asked for.
graph::Numbers numbers_of(const PretrainingSettings& settings);

/// All settings, by name.
nlohmann::ordered_json json_of(const PretrainingSettings& settings);

/// Without its time, which differs from run to run.
nlohmann::ordered_json json_of(const PretrainingEvaluation& evaluation);

}  // namespace tessera::train
