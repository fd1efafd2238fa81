// What trainers of all networks share: the order of the samples, and the runs of a session's steps.
#pragma once

#include <tessera/training.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "data/samples.h"

namespace tessera::train {

/// The samples of each step: those for training, shuffled for every epoch; the last incomplete batch is left
/// out.
class BatchOrder {
 public:
  BatchOrder(const Division& division, uint32_t batch, uint64_t seed)
      : training_(division.training), batch_(batch), seed_(seed) {}

  uint64_t steps_per_epoch() const { return training_.size() / batch_; }
  /// Of a step, counted from 0; valid until the next call.
  std::span<const uint32_t> of_step(uint64_t step);

 private:
  std::vector<uint32_t> training_;
  uint32_t batch_;
  uint64_t seed_;
  std::vector<uint32_t> order_;
  std::optional<uint64_t> epoch_;
};

/// Runs steps and adds up what they take. On a host one in some is measured operation by operation, which
/// takes a little longer.
class StepRuns {
 public:
  StepRuns(model::Session& session, const Machine& machine) : session_(session), machine_(machine) {}

  /// Returns the seconds of a step: on a tiled machine the model's.
  double run(std::span<const model::Tensor> arrays);
  /// Forgets earlier steps.
  void restart() { taken_ = {}; }
  /// Enters what they took, and evaluating a batch.
  void enter(double evaluation_seconds, TrainingResult& result) const;

 private:
  uint64_t cycles_of(double seconds) const;

  struct Taken {
    uint64_t steps = 0;
    std::vector<double> measured = {};  ///< sums over the steps that are measured
    uint64_t measurements = 0;
    uint64_t cycles = 0, step_cycles = 0;
  };

  model::Session& session_;
  const Machine& machine_;
  Taken taken_;
};

/// Calls `make`, which makes sessions, and says so if a tiled machine has too little memory for them.
void make_for(const Machine& machine, const std::function<void()>& make);

/// Throws Error for a session that exceeds the memory of its machine.
void require_fit(std::initializer_list<model::RunCost> costs);

}  // namespace tessera::train
