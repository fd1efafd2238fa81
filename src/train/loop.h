// The loop of training: epochs, validation, the best network, checkpoints, progress. What a step is, a
// network says.
#pragma once

#include <tessera/training.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/evaluation.h"

namespace tessera::train {

struct StepResult {
  double loss = 0;
  std::optional<uint64_t> right = {};  ///< of the batch, if that is counted
  double seconds = 0;
  std::vector<SpikingActivity> activity = {};
};

/// A network with its data.
class Trained {
 public:
  Trained() = default;
  Trained(const Trained&) = delete;
  Trained& operator=(const Trained&) = delete;
  virtual ~Trained() = default;

  /// Trains with the batch of a step, counted from 0.
  virtual StepResult step(uint64_t number) = 0;
  virtual Score validate() = 0;
  virtual Score test() = 0;
  /// Has the parameters and the optimizer's state.
  virtual model::Session& session() = 0;
};

class Loop {
 public:
  /// `rate` is that which an error names.
  Loop(Identity identity, uint32_t batch, double rate)
      : identity_(std::move(identity)), batch_(batch), rate_(rate) {}

  const Identity& identity() const { return identity_; }
  uint64_t step() const { return position_.step; }

  void resume(const std::string& checkpoint, bool allow_different_place, model::Session& session);
  /// Trains to the end, and tests the best network, unless `run` stops it. `measured` and cycles are the
  /// caller's.
  TrainingResult run(Trained& network, const TrainingRun& run);

 private:
  void add(const StepResult& step);
  void require_finite(double loss, const TrainingRun& run) const;
  TrainingProgress progress() const;
  void finish_epoch(Trained& network, const TrainingRun& run, double seconds);
  void save(Trained& network, const TrainingRun& run) const;

  Identity identity_;
  uint32_t batch_;
  double rate_;
  Position position_;
  bool counts_right_ = true;
};

}  // namespace tessera::train
