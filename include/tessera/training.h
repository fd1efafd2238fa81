// The training loop of classifiers of images and of recordings of spikes, with its checkpoints.
#pragma once

#include <tessera/communicator.h>
#include <tessera/graph.h>
#include <tessera/images.h>
#include <tessera/machine.h>
#include <tessera/recordings.h>
#include <tessera/resnet_training.h>
#include <tessera/spiking_training.h>
#include <tessera/training_settings.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

namespace train {
struct TrainerImpl;
}

/// Activity of a hidden layer of spiking neurons in an epoch.
struct SpikingActivity {
  double firing = 0;     ///< fraction of the layer's neurons that fire in a step
  double listed = 0;     ///< fraction of its neurons that fire or pass a gradient, and are listed
  uint64_t dropped = 0;  ///< spikes and candidates that did not fit in the lists
};

struct EpochResult {
  uint32_t epoch = 0;                   ///< number of the epoch, from 1
  double loss = 0;                      ///< mean over the training images of the epoch
  std::optional<double> accuracy = {};  ///< on the training images; none with micro-batches
  double validation_loss = 0;
  double validation_accuracy = 0;
  double seconds = 0;                          ///< time on the host; 0 if an earlier process trained the
                                               ///< epoch
  std::vector<SpikingActivity> activity = {};  ///< activity of the hidden layers of a spiking network
};

struct TrainingProgress {
  uint32_t epoch = 1;
  uint64_t step = 0;  ///< finished steps, over all epochs
  uint64_t steps = 0;
  double loss = 0;  ///< mean of the epoch so far
  std::optional<double> accuracy = {};
  const EpochResult* finished = nullptr;  ///< after the last step of an epoch
  double step_loss = 0;                   ///< loss of the last step alone
};

/// Scores on samples that are not trained with.
struct SampleScore {
  double loss = 0;
  double accuracy = 0;
};

/// A parameter, row by row.
struct NamedParameter {
  std::string name;
  graph::Shape shape;
  std::vector<float> values;
};

struct TrainingRun {
  std::string checkpoint = {};  ///< file written after each epoch, and when training is stopped; empty: none
  /// Called after each step (after the last step of an epoch, when the epoch's evaluation is done); training
  /// stops if it returns false.
  std::function<bool(const TrainingProgress&)> progress = {};
};

struct TrainingResult {
  bool finished = false;
  uint64_t step = 0;  ///< finished steps, over all epochs
  std::vector<EpochResult> epochs;
  uint32_t best_epoch = 0;  ///< the epoch with the best validation accuracy; 0: none yet
  /// Results of the network after the best epoch, if training finished.
  std::optional<double> test_loss, test_accuracy;
  // Figures of this process alone:
  uint64_t steps_run = 0;
  double step_seconds = 0;  ///< mean time of a step; on a tiled machine, the time that the model predicts
  /// Mean seconds of each operation of Trainer::graph(), on a host; empty: too few steps to measure.
  std::vector<double> measured = {};
  uint64_t cycles = 0;             ///< cycles of all training steps on a tiled machine
  uint64_t step_cycles = 0;        ///< cycles of the last training step
  uint64_t evaluation_cycles = 0;  ///< cycles of evaluating one batch
  double seconds = 0;              ///< time on the host
};

/// A network with its data, on a machine. Samples are divided at random into training and validation samples,
/// and shuffled for every epoch; the last incomplete batch is left out. The seed determines all random
/// choices: with the same tiles and instruction set, training gives the same bits.
class Trainer {
 public:
  // Throw UsageError for settings that are out of range, contradict each other or do not fit the data.
  // `threads`: see graph::SessionOptions.

  /// A multilayer perceptron. Images are standardised per feature by the statistics of the training samples.
  /// Initial weights are normally distributed with a standard deviation of 1/√(inputs of their row), biases
  /// 0, unless the recipe says otherwise.
  Trainer(const TrainingSettings& settings, const ImageSplit& images, const Machine& machine,
          uint32_t threads = 0);
  /// A spiking network. Currents enter as the binary digits of their values in 255 parts, each digit as a
  /// unit whose weight is the current's weight times the digit's place value. Initial weights are normally
  /// distributed, scaled layer after layer so that the layer fires at the rate `initial_firing`.
  Trainer(const SpikingTrainingSettings& settings, const RecordingSplit& recordings, const Machine& machine,
          uint32_t threads = 0);
  /// A residual network. It is validated and tested with its running statistics, on images as they are. With
  /// a communicator, its ranks divide the replicas among them, and train as one process does, bit for bit:
  /// all have the same settings, images, machine and checkpoints, and make the same calls. A rank takes the
  /// images of its own replicas; all evaluate. The first rank writes files, and training stops on all if
  /// progress() stops it on one.
  Trainer(const ResnetTrainingSettings& settings, const ImageSplit& images, const Machine& machine,
          uint32_t threads = 0, const std::shared_ptr<Communicator>& communicator = {});
  /// A residual network for JPEG files, for which the library must be built with libjpeg; several threads
  /// read them. Images are normalised by the statistics of ImageNet.
  Trainer(const ResnetTrainingSettings& settings, const ImageFolder& images, const Machine& machine,
          uint32_t threads = 0, const std::shared_ptr<Communicator>& communicator = {});
  /// A trainer that only estimates: it computes costs without sessions and their memory, and cannot train.
  static Trainer for_estimates(const TrainingSettings& settings, const ImageSplit& images,
                               const Machine& machine, uint32_t threads = 0);
  static Trainer for_estimates(const SpikingTrainingSettings& settings, const RecordingSplit& recordings,
                               const Machine& machine, uint32_t threads = 0);
  static Trainer for_estimates(const ResnetTrainingSettings& settings, const ImageSplit& images,
                               const Machine& machine, uint32_t threads = 0);
  static Trainer for_estimates(const ResnetTrainingSettings& settings, const ImageFolder& images,
                               const Machine& machine, uint32_t threads = 0);
  static Trainer for_estimates(const ResnetTrainingSettings& settings, const ImageOutline& images,
                               const Machine& machine, uint32_t threads = 0);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  const LearningSettings& settings() const;
  /// All settings, by name, as one JSON object.
  const std::string& settings_json() const;
  uint64_t training_samples() const;
  uint64_t validation_samples() const;
  uint64_t test_samples() const;
  uint64_t steps_per_epoch() const;
  uint64_t steps() const;        ///< steps of the whole training
  uint64_t evaluations() const;  ///< evaluations of all validation samples, in the whole training
  uint64_t parameters() const;   ///< number of stored values, learned or not, without running statistics

  /// Cost of a training step, and of evaluating one batch of evaluation_batch() samples.
  graph::RunCost step_cost() const;
  graph::RunCost evaluation_cost() const;
  uint32_t evaluation_batch() const;
  /// The graph of a training step; RunCost::operations of step_cost() are its operations, in order.
  const graph::Graph& graph() const;

  /// Continues from a checkpoint, and gives the same bits as uninterrupted training. Throws Error, and
  /// changes nothing, for a damaged file or a checkpoint of other settings or data; and, unless different
  /// bits are allowed, for a checkpoint of another machine, number of tiles or instruction set.
  void resume(const std::string& checkpoint, bool allow_different_bits = false);
  /// Finished steps, over all epochs.
  uint64_t step() const;

  /// Trains to the end, then tests the network of the best epoch once. Throws Error if the machine's memory
  /// does not suffice, and when the loss is not finite.
  TrainingResult train(const TrainingRun& run = {});
  /// Epochs that train() has finished, including epochs before a resumed checkpoint, and the number of the
  /// epoch with the best validation accuracy; 0: none yet.
  const std::vector<EpochResult>& history() const;
  uint32_t best_epoch() const;

  /// Evaluate the present parameters on the validation samples, and on the test samples. The results of
  /// train() do not depend on these calls.
  SampleScore validate();
  SampleScore test();
  /// Writes a checkpoint, as train() does when it is stopped. After a step that failed when it had begun, or
  /// whose loss is not finite, or an evaluation in train() that failed, save() and train() throw Error until
  /// a checkpoint is resumed.
  void save(const std::string& checkpoint);

  /// Writes the parameters, sparse ones with their zeros, to a .safetensors file. Parameters of a residual
  /// network have torchvision's names and shapes. After train() has finished, or a checkpoint from after the
  /// last step is resumed, the file has the parameters of the best epoch.
  void save_parameters(const std::string& path);
  /// The parameters that save_parameters() writes, in memory and in FP32.
  std::vector<NamedParameter> named_parameters();

  /// The response to a recording of the test set. Throws UsageError for networks that do not spike.
  SpikingTraces traces(size_t recording);

 private:
  explicit Trainer(std::unique_ptr<train::TrainerImpl> impl);

  std::unique_ptr<train::TrainerImpl> impl_;
};

}  // namespace tessera
