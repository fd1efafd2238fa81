// Common parts of training all networks: the order of samples, steps, epochs, validation, the best network,
// checkpoints, progress. Derived classes define batches and steps.
#pragma once

#include <tessera/communicator.h>
#include <tessera/training.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "data/samples.h"
#include "train/checkpoint.h"

namespace tessera {

namespace train {

/// The costs of a step and of an evaluation with its parameters, estimated side by side if threads are
/// allowed (0: as many as the process may use). Fits the step to its memory budget first, if it has one.
/// `host_io` and inputs: see graph::EstimateOptions.
std::pair<graph::RunCost, graph::RunCost> estimate_both(graph::Graph& training,
                                                        const graph::Graph& evaluation,
                                                        const Machine& machine, uint32_t threads,
                                                        bool host_io,
                                                        std::span<const graph::Tensor> of_training = {},
                                                        std::span<const graph::Tensor> of_evaluation = {});

/// Number of elements of all parameters.
uint64_t count_parameters(const graph::Graph& graph);

/// Number of rows whose largest logit is the label's; of equal logits, the first counts.
uint64_t count_right(std::span<const float> logits, std::span<const uint32_t> labels);

/// −log softmax(logits)[label]
double cross_entropy_of(std::span<const float> logits, uint32_t label);

/// The graphs of a network, and the identities on which runs and checkpoints depend.
struct Trainable {
  LearningSettings settings;
  std::string settings_json;
  std::string data;  ///< name, counts and checksum of the samples
  uint64_t training_samples;
  uint64_t test_samples;
  uint32_t classes;
  graph::Graph training;
  graph::Graph evaluation;  ///< with the parameters of the training graph
  uint32_t evaluation_rows;
  std::string machine;  ///< name of the machine in checkpoints
  uint64_t steps = 0;   ///< 0: as many as the epochs take
};

struct StepResult {
  double loss = 0;
  std::optional<uint64_t> right = {};  ///< number of correct answers in the batch, if counted
  double seconds = 0;
  std::vector<SpikingActivity> activity = {};
};

struct TrainerImpl {
  TrainerImpl(Trainable of, Machine place, uint32_t most_threads, bool only_estimates,
              std::shared_ptr<Communicator> ranks = {});
  TrainerImpl(const TrainerImpl&) = delete;
  TrainerImpl& operator=(const TrainerImpl&) = delete;
  virtual ~TrainerImpl() = default;

  /// Called before the first step of a training that does not continue another.
  virtual void prepare() {}
  virtual uint64_t parameters() const;
  virtual SpikingTraces traces(size_t recording);
  virtual void save_parameters(const std::string& path) { trained().save_parameters(path); }
  virtual std::vector<NamedParameter> named_parameters();

  /// The sessions. Throw UsageError if there are none, because the trainer only estimates.
  graph::Session& trained() { return sessions().trained; }
  graph::Session& evaluation() { return sessions().evaluation; }
  /// The graph of a training step, as sessions transform it.
  const graph::Graph& graph() const { return sessions_ ? sessions_->trained.graph() : estimated_->graph; }
  graph::RunCost step_cost() const { return sessions_ ? sessions_->trained.cost() : estimated_->step; }
  graph::RunCost evaluation_cost() const {
    return sessions_ ? sessions_->evaluation.cost() : estimated_->evaluation;
  }

  uint64_t steps() const { return identity.steps; }
  TrainingResult train(const TrainingRun& run);
  void prepare_once();
  void require_success() const;
  SampleScore validate() { return evaluate(false, division.validation); }
  SampleScore test();
  void save(const std::string& checkpoint);
  /// After the last step: from then on the parameters are the best epoch's.
  void take_best();

  Trainable what;
  Machine machine;
  uint32_t threads;
  std::shared_ptr<Communicator> communicator;  ///< null: one process has all replicas
  Division division;
  Identity identity;
  Position position;
  std::optional<Snapshot> last;  ///< after the last step, while the parameters are the best epoch's
  bool is_prepared = false;
  /// The step, counted from 1, that has begun to change the session, until it and an evaluation after it have
  /// ended well; 0: none.
  uint64_t unfinished = 0;

 protected:
  /// Trains with the batch of a step, counted from 0. Calls begin_changes() before it changes the session.
  virtual StepResult step(uint64_t number) = 0;
  void begin_changes(uint64_t number) { unfinished = number + 1; }
  /// Evaluates the samples `which`, at most as many as the evaluation has rows; returns their labels.
  virtual std::span<const uint32_t> evaluate_batch(bool of_test, std::span<const uint32_t> which) = 0;
  virtual double loss_of(std::span<const float> row, uint32_t label) const {
    return cross_entropy_of(row, label);
  }

  /// The samples of a step: those for training, shuffled for every epoch; the last incomplete batch is left
  /// out. Valid until the next call.
  std::span<const uint32_t> samples_of(uint64_t step);
  /// Runs a step, counted from 0, with its labels and all further inputs that its graph may take, except the
  /// learning rate.
  StepResult run_step(uint64_t number, std::span<const uint32_t> labels, std::vector<graph::Tensor> arrays);

  base::BufferVector<float> logits;  ///< logits of a training step, or an evaluation
  double evaluation_seconds = 0;     ///< seconds of one batch; on a tiled machine the model's

 private:
  struct Sessions {
    graph::Session trained;
    graph::Session evaluation;
  };
  struct Estimated {
    graph::Graph graph;
    graph::RunCost step, evaluation;
  };
  Sessions& sessions();

  /// Runs the session of a step; returns its seconds, on a tiled machine the model's. On a host, some steps
  /// are measured operation by operation, which takes a little longer.
  double run_timed(std::span<const graph::Tensor> arrays);
  SampleScore evaluate(bool of_test, std::span<const uint32_t> which);
  uint64_t cycles_of(double seconds) const;
  void add(const StepResult& step);
  void require_finite(std::string_view name, double loss, const TrainingRun& run);
  TrainingProgress progress() const;
  void finish_epoch(const TrainingRun& run, double seconds);
  void save(const TrainingRun& run);

  /// Times of this training's steps.
  struct Taken {
    uint64_t steps = 0;
    std::vector<double> measured = {};  ///< seconds by operation, summed over the measured steps
    uint64_t measurements = 0;
    uint64_t cycles = 0, step_cycles = 0;
  };

  std::optional<Sessions> sessions_;
  std::optional<Estimated> estimated_;  ///< if there are no sessions
  Taken taken_;
  std::vector<uint32_t> order_;
  std::optional<uint64_t> order_is_of_;  ///< epoch of the present order
  bool counts_right_ = true;
};

using base::Clock;
using base::seconds_since;

/// Within a handler: throws what was caught, and says that a tiled machine has too little memory, if it has.
[[noreturn]] void rethrow_for(const Machine& machine);

/// make(), which makes a trainer; throws Error, saying so, if a tiled machine has too little memory.
template <class Make>
auto make_for(const Machine& machine, const Make& make) {
  try {
    return make();
  } catch (const Error&) {
    rethrow_for(machine);
  }
}

/// Throws Error for a session that exceeds the memory of its machine.
void require_fit(std::initializer_list<graph::RunCost> costs);

/// Throws Error for a loss that is not finite; `kept` is the last checkpoint, or "".
void require_finite(std::string_view name, double loss, uint64_t step, uint64_t epoch, double lr,
                    const std::string& kept);

}  // namespace train

}  // namespace tessera
