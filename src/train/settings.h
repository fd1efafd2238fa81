// Settings of training: names, limits, and their form in checkpoints.
#pragma once

#include <tessera/training.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera::train {

/// Throws UsageError that names the wrong setting, its value and its limits.
void check(const TrainingSettings& settings);

/// Throws UsageError that says what is wrong, unless the condition holds.
void require(bool holds, std::string_view what, double value, std::string_view range);

/// The settings of optimizer and loop that all networks have. `data` are what it learns from.
template <class Settings>
void check_learning(const Settings& s, double decay, std::string_view data) {
  require(std::isfinite(s.rate) && s.rate > 0, "the learning rate", s.rate, "positive");
  require(s.momentum >= 0 && s.momentum < 1, "the momentum", s.momentum, "at least 0 and less than 1");
  require(s.optimizer != OptimizerKind::nesterov || s.momentum > 0, "the momentum of Nesterov's method",
          s.momentum, "positive");
  require(std::isfinite(decay) && decay >= 0, "the weight decay", decay, "at least 0");
  if (s.clip) require(std::isfinite(*s.clip) && *s.clip > 0, "the clipping norm", *s.clip, "positive");
  require(s.batch >= 1, "the batch", s.batch, "at least 1");
  require(s.epochs >= 1, "the number of epochs", s.epochs, "at least 1");
  require(s.validation > 0 && s.validation < 1, "the fraction of validation " + std::string(data),
          s.validation, "between 0 and 1");
}

/// Throws UsageError if so many images for training and validation do not fill a batch.
void check_batch(const TrainingSettings& settings, uint64_t images);

/// All of them, by name.
nlohmann::ordered_json json_of(const TrainingSettings& settings);

bool is_sparse(const TrainingSettings& settings);
/// Whether hidden layers have a structure of layers.h.
bool is_structured(const TrainingSettings& settings);
/// Whether the recipe says anything: that of a dense network only does if it is the paper's.
bool has_recipe(const TrainingSettings& settings);
/// Whether patterns change.
bool drops_and_grows(const TrainingSettings& settings);

}  // namespace tessera::train
