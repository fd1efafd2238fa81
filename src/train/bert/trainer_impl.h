// The pre-training of BERT: phases, steps, evaluations, and checkpoints.
#pragma once

#include <tessera/pretraining.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"

namespace tessera::train {

/// The position in pre-training, besides the session's state. Sums are since the last evaluation, over steps
/// whose loss is finite.
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
  BertTrainerImpl(const PretrainingSettings& given, const TextSplit& text, Machine target,
                  uint32_t thread_count, bool estimates_only, std::shared_ptr<Communicator> ranks = {});

  PretrainingResult train(const PretrainingRun& run);
  void resume(const std::string& checkpoint, bool allow_different_bits);
  /// Beside the evaluations of train().
  PretrainingEvaluation evaluate_now();
  void save(const PretrainingRun& run);

  /// The session of the present phase's steps. Throws UsageError if the trainer only estimates, Error if
  /// there is none because a phase could not begin.
  graph::Session& trained() { return sessions().trained; }

  /// Throws Error if a phase does not fit the machine's memory.
  void require_fit() const;
  /// Throws Error after a step that failed: training can only continue from an earlier checkpoint.
  void require_success() const;

  uint64_t evaluations_in(size_t phase) const;
  uint64_t evaluation_batches(size_t phase) const;

  /// A phase with its sequences, and the costs of its graphs.
  struct Phase {
    PretrainingPhase settings;
    PretrainingData training;
    PretrainingData held_out;
    uint64_t steps_per_epoch = 0;
    uint64_t begin = 0;  ///< step with which it begins
    std::optional<graph::Graph> graph = {};
    graph::RunCost step = {}, evaluation = {};

    uint64_t end() const { return begin + settings.steps; }
  };
  struct Sessions {
    size_t phase = 0;
    graph::Session trained;
    graph::Session evaluation;
  };

  PretrainingSettings settings;
  std::string settings_json;
  Machine machine;
  uint32_t threads;
  bool only_estimates;
  std::shared_ptr<Communicator> communicator;  ///< null: one process has all replicas
  std::vector<Phase> phases;
  uint64_t steps = 0;
  Identity identity;
  PretrainingPosition position;
  std::optional<Sessions> present;
  std::string last_checkpoint;  ///< last one written or read; "": none
  /// The step, counted from 1, that has begun, until it and an evaluation after it have ended well; 0: none.
  uint64_t unfinished = 0;

 private:
  /// Totals of the steps of this process.
  struct StepTotals {
    uint64_t tokens = 0, sequences = 0;
    double seconds = 0;
  };

  Sessions& sessions();
  void add_phase(const PretrainingPhase& phase, const TextSplit& text);
  graph::Graph training_graph_of(const Phase& phase) const;
  graph::Graph evaluation_graph_of(const Phase& phase) const;
  Sessions sessions_of(size_t phase) const;
  /// Computes the costs of a phase; if it is the present one, takes them from its sessions.
  void estimate(size_t phase);
  size_t phase_of(uint64_t step) const;
  uint32_t rows_of_evaluation(const Phase& phase) const;
  uint32_t epoch_of(uint64_t step) const;
  /// Makes the sessions of the phase of a step, with the state so far. If that fails, the sessions stay as
  /// they were.
  void enter_phase_of(uint64_t step, const PretrainingRun& run);
  /// Trains with the batch of a step, counted from 0; returns its loss.
  double step(uint64_t number, const PretrainingRun& run, StepTotals& totals);
  PretrainingEvaluation evaluate();
  /// Whether the loss of a step is not finite and the step has changed nothing but a loss scale, which may
  /// fall further.
  bool is_left_out(double loss);
  bool is_evaluated(uint64_t step) const;
  uint64_t evaluations_until(uint64_t step) const;
  void check_position(const PretrainingPosition& position, const std::string& checkpoint) const;
  PretrainingProgress progress() const;
};

}  // namespace tessera::train
