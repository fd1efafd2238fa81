// The pre-training of BERT: phases, steps, evaluation, and what is kept of them.
#pragma once

#include <tessera/pretraining.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"

namespace tessera::train {

/// The position in pre-training, besides the session's state. Sums are since the last evaluation.
struct PretrainingPosition {
  uint64_t step = 0;
  uint64_t sequences = 0;
  uint64_t steps_in_sum = 0;
  double loss_sum = 0;
  std::vector<PretrainingEvaluation> evaluations = {};
};

/// As JSON, without times, and back. Throws an exception of JSON for another text.
std::string text_of(const PretrainingPosition& position);
PretrainingPosition position_of(const std::string& text);

struct BertTrainerImpl {
  BertTrainerImpl(const PretrainingSettings& chosen, const TextSplit& text, Machine place,
                  uint32_t most_threads, bool only_estimates);

  PretrainingResult train(const PretrainingRun& run);
  void resume(const std::string& checkpoint, bool allow_different_bits);

  /// The sessions of the present phase. Throw UsageError if there are none, because the trainer only
  /// estimates.
  graph::Session& trained() { return sessions().trained; }

  uint64_t evaluations_until(uint64_t step) const;
  uint64_t evaluation_batches() const;

  /// A phase with its sequences.
  struct Phase {
    PretrainingPhase of;
    PretrainingData training;
    PretrainingData held_out;
    uint64_t steps_per_epoch = 0;
    uint64_t begin = 0;  ///< step with which it begins
  };
  struct Sessions {
    size_t phase = 0;
    graph::Session trained;
    graph::Session evaluation;
  };
  struct Estimated {
    graph::Graph graph;
    graph::RunCost step, evaluation;
  };

  PretrainingSettings settings;
  std::string settings_json;
  Machine machine;
  uint32_t threads;
  std::vector<Phase> phases;
  uint64_t steps = 0;
  Identity identity;
  PretrainingPosition position;
  std::optional<Sessions> present;
  std::optional<Estimated> estimated;  ///< if there are no sessions

 private:
  struct Taken {
    uint64_t tokens = 0, sequences = 0;
    double seconds = 0;
  };

  Sessions& sessions();
  void add_phase(const PretrainingPhase& phase, const TextSplit& text);
  Sessions sessions_of(size_t phase) const;
  size_t phase_of(uint64_t step) const;
  uint32_t rows_of_evaluation(const Phase& phase) const;
  uint32_t epoch_of(uint64_t step) const;
  /// Has the sessions be those of the phase of a step, with the state so far.
  void enter_phase_of(uint64_t step);
  /// Trains with the batch of a step, counted from 0; returns its loss.
  double step(uint64_t number, Taken& taken);
  PretrainingEvaluation evaluate();
  bool is_evaluated(uint64_t step) const;
  void save(const PretrainingRun& run) const;
  PretrainingProgress progress() const;
};

}  // namespace tessera::train
