// Training of classifiers: labelled images and recordings of spikes, the choice of blocks of a dynamic weight
// to drop and grow, and the training loop with its checkpoints.
#pragma once

#include <tessera/graph.h>
#include <tessera/layers.h>
#include <tessera/machine.h>
#include <tessera/spiking.h>
#include <tessera/types.h>
#include <tessera/weight.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

namespace train {
struct TrainerImpl;
}

/// Labelled images of one size.
struct ImageSet {
  uint32_t channels = 1;
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t classes = 10;
  std::vector<uint8_t> pixels;  ///< image after image, each channel by channel, row by row
  std::vector<uint8_t> labels;  ///< class of each image, less than `classes`

  size_t count() const { return labels.size(); }
  size_t image_size() const { return size_t{channels} * height * width; }
  std::span<const uint8_t> image(size_t i) const { return {pixels.data() + i * image_size(), image_size()}; }
};

/// Images for training and testing.
struct ImageSplit {
  std::string name;  ///< "MNIST", "CIFAR-10", …
  ImageSet train;
  ImageSet test;
};

/// MNIST and its derivatives (LeCun, Cortes & Burges 1998): a file of images (IDX, 3 dimensions of bytes) and
/// one of labels (1 dimension), optionally gzip-compressed. Throws Error, naming the file, if one cannot be
/// read or is malformed, if their counts differ, or for labels above 9.
ImageSet read_idx_images(const std::string& images, const std::string& labels);

/// A batch of CIFAR-10 in its binary version (Krizhevsky 2009): records of a label and 3 × 32 × 32 bytes.
/// Throws Error as above.
ImageSet read_cifar10(const std::string& batch);

/// The images that a folder contains under their official names: MNIST in it or in its `mnist`, else CIFAR-10
/// in it or in its `cifar-10-batches-bin`. `name` is "mnist", "cifar-10", or empty for the first found. If
/// MNIST's training files are missing, the last fifth of its test images become the test set, the others the
/// training set. Throws Error if there are none.
ImageSplit load_images(const std::string& folder, const std::string& name = "");

struct ImageShape {
  uint32_t height = 28;
  uint32_t width = 28;
  uint32_t classes = 10;
};

/// Synthetic images: each class is a few smooth random templates, each image a template shifted, scaled and
/// with noise. A function of the seed and the shape alone.
ImageSplit synthetic_images(size_t train, size_t test, uint64_t seed, const ImageShape& shape = {});

// Recordings for spiking networks.

/// Unit `unit` fires in time step `step`.
struct SpikeEvent {
  uint16_t step = 0;
  uint16_t unit = 0;

  auto operator<=>(const SpikeEvent&) const = default;
};

/// Labelled recordings of one length, of spikes or of currents.
struct Recordings {
  uint32_t steps = 0;  ///< at most 65,536
  uint32_t units = 0;  ///< at most 65,536
  uint32_t classes = 0;
  std::vector<uint32_t> labels = {};  ///< class of each recording
  /// Spikes: those of recording i are events[begin[i]] to events[begin[i + 1] - 1], by step, then by unit.
  /// None is there twice: several events of a unit in a step are one spike.
  std::vector<uint64_t> begin = {0};
  std::vector<SpikeEvent> events = {};
  /// Currents, recording after recording, each [steps, units]; then there are no spikes.
  std::vector<float> currents = {};

  size_t count() const { return labels.size(); }
  bool are_currents() const { return !currents.empty(); }
  std::span<const SpikeEvent> spikes(size_t i) const {
    return {events.data() + begin[i], events.data() + begin[i + 1]};
  }
  std::span<const float> current(size_t i) const {
    const size_t size = size_t{steps} * units;
    return {currents.data() + i * size, size};
  }
};

/// Recordings for training and testing.
struct RecordingSplit {
  std::string name;
  Recordings train = {};
  Recordings test = {};
  // Events that are left out:
  uint64_t merged = 0;   ///< because their unit had fired in their step
  uint64_t outside = 0;  ///< because they lie outside the window, or the part of the sensor
};

/// Synthetic recordings whose information is in the times of spikes alone (Zenke & Vogels 2021): each unit
/// fires once, at a time that is a smooth random function of a point on a manifold, one function for each
/// unit and class.
struct RandmanSettings {
  uint32_t units = 20;
  uint32_t classes = 10;
  uint32_t dimensions = 1;  ///< of the manifolds
  double alpha = 2;         ///< smoothness
  uint32_t samples = 1000;  ///< of each class
};
Recordings randman(const RandmanSettings& settings, uint32_t steps, uint64_t seed);

/// How spikes code a pixel x, from 0 to 1: the time at which a leaky integrator with time constant tau and a
/// constant current x reaches the threshold, tau · ln(x / (x − threshold)) steps, rounded down. Pixels up to
/// the threshold do not fire, and neither do those that come too late.
struct LatencySettings {
  double tau = 20;  ///< steps
  double threshold = 0.2;
};
/// A unit for each pixel of each channel.
Recordings latency_coded(const ImageSet& images, uint32_t steps, const LatencySettings& settings = {});

/// How recordings are read and brought into steps. What is 0 becomes what load_recordings() says.
struct RecordingSettings {
  uint32_t steps = 0;
  double seconds = 0;      ///< the window from the beginning of each recording that the steps divide
  uint32_t crop = 0;       ///< side of the square in the middle of a sensor that is kept; 0: all of it
  uint32_t downscale = 0;  ///< side of the square of pixels of a sensor that become one
  double delta = 0.02;     ///< change of a current, from 0 to 1, for each event of "braille-delta"
  double test = 0.2;       ///< fraction for testing of sets that are not divided
  LatencySettings latency = {};
  RandmanSettings randman = {};
  uint64_t seed = 0;  ///< of that division and of Randman
};

/// The data sets that load_recordings() knows.
std::span<const std::string_view> recording_sets();

/// A data set of a folder, or of its usual subfolder, with the steps, the seconds and the `downscale` that it
/// usually has:
///
///     randman        100            made from the seed, without files
///     mnist-latency  100            MNIST, as load_images() finds it
///     braille        152            taxels.npy, lengths.npy, labels.npy: currents
///     braille-delta  152            the same, a unit for each rise and each fall by `delta`
///     shd, ssc       100, 1.4 s     shd_train.h5, shd_test.h5; ssc_….h5
///     n-mnist        100, 0.3 s, 1  Train/0/….bin, Test/0/….bin
///     dvs-gesture    100, 6 s, 4    trials_to_train.txt, trials_to_test.txt, ….aedat, ….csv
///     events         100, 1         CLASS/….npy, or train/CLASS/….npy and test/CLASS/….npy
///
/// Throws UsageError for settings out of range, Error for missing and malformed files.
RecordingSplit load_recordings(const std::string& name, const std::string& folder,
                               const RecordingSettings& settings = {});

// Dropping and growing blocks of a dynamic weight, as sparse training does periodically.

/// The `count` stored blocks with the smallest sums of absolute values, or all if there are fewer. Weights
/// have to be FP32.
std::vector<BlockPosition> weakest_blocks(const Weight& weight, uint64_t count);
std::vector<BlockPosition> weakest_blocks(const SparseMatrix& matrix, uint64_t count);

/// `count` blocks that are not stored, chosen uniformly (SET; Mocanu et al., Nature Communications 9, 2018),
/// or all if there are fewer. The choice is a function of the pattern, `seed`, `step` and `layer`.
std::vector<BlockPosition> random_empty_blocks(const Weight& weight, uint64_t count, uint64_t seed,
                                               uint32_t step);
std::vector<BlockPosition> random_empty_blocks(const Pattern& pattern, uint64_t count, uint64_t seed,
                                               uint32_t step, uint32_t layer = 0);

/// The `count` blocks that are not stored in which the gradient of the dense m × k matrix has the largest
/// sums of absolute values (RigL; Evci et al., ICML 2020), or all if there are fewer.
std::vector<BlockPosition> strongest_empty_blocks(const Weight& weight, uint64_t count,
                                                  MatrixView<const float> dense_gradient);
std::vector<BlockPosition> strongest_empty_blocks(const Pattern& pattern, uint64_t count,
                                                  MatrixView<const float> dense_gradient);

/// The pattern without and with these blocks. Throws UsageError if one is grown that is stored already.
Pattern replaced(const Pattern& pattern, std::span<const BlockPosition> drop,
                 std::span<const BlockPosition> grow);

// The training loop.

/// Of hidden layers. Those after dynamic_sparse are structures of layers.h.
enum class LayerKind : uint8_t {
  dense,
  static_sparse,   ///< blocks whose pattern is fixed
  dynamic_sparse,  ///< blocks that are dropped and grown
  butterfly,
  bpbp,
  pixelfly,
  fastfood,
  circulant,
  low_rank,
  monarch,
  block_butterfly,
};
/// How dense and structured networks begin, and what they are trained with.
enum class Recipe : uint8_t {
  /// As published (Thomas et al. 2018, Dao et al. 2019): hidden layers with the initial values of each
  /// structure, an output layer uniform up to ±1/√inputs, one learning rate; features are standardised with
  /// all training images, those for validation included.
  paper,
  /// Initial values and learning rates for each factor, for Adam.
  best,
};
enum class OptimizerKind : uint8_t { sgd, momentum, nesterov, adam, adamw, lamb, lars };
enum class DropGrowKind : uint8_t { none, set, rigl };

// "dense", "static", "dynamic", "butterfly", …; "paper", "best"; "sgd", …; "none", "set", "rigl". The
// functions from names throw UsageError that lists them.
std::string_view name_of(LayerKind kind);
std::string_view name_of(Recipe recipe);
std::string_view name_of(OptimizerKind kind);
std::string_view name_of(DropGrowKind kind);
LayerKind layer_kind_named(std::string_view name);
Recipe recipe_named(std::string_view name);
OptimizerKind optimizer_named(std::string_view name);
DropGrowKind drop_grow_named(std::string_view name);

/// When a dynamic network drops blocks and grows as many.
struct DropGrowSchedule {
  DropGrowKind kind = DropGrowKind::rigl;
  double change = 0.3;   ///< fraction of the blocks that is replaced first; decays to 0 as a cosine
  uint32_t every = 100;  ///< steps
  double until = 0.75;   ///< fraction of the steps after which patterns stay

  /// The fraction to replace before a step, counted from 0.
  double fraction(uint64_t step, uint64_t steps) const;
};

/// How networks learn, whatever they are.
struct LearningSettings {
  OptimizerKind optimizer = OptimizerKind::momentum;
  double momentum = 0.9;             ///< of momentum, nesterov and lars
  graph::Betas betas = {};           ///< of adam, adamw and lamb
  bool bias_correction = true;       ///< of these
  double trust_coefficient = 0.001;  ///< of lars
  double weight_decay = 0;
  /// Parameters without weight decay and trust ratio, by names in which `*` stands for any characters.
  std::vector<std::string> excluded = {};
  double lr = 0.001;
  /// How it changes; `steps` of 0 are all steps of the training.
  graph::Schedule lr_schedule = {};
  std::optional<double> clip_norm = {};  ///< norm of the gradient
  uint32_t batch = 50;
  uint32_t epochs = 15;
  uint64_t seed = 0;
  double validation = 0.15;  ///< fraction of the samples for training

  /// Of a step, counted from 0, of a training with so many.
  double lr_of(uint64_t step, uint64_t steps) const;
};

/// A multilayer perceptron and how to train it.
struct TrainingSettings : LearningSettings {
  std::vector<uint32_t> layers = {1024, 1024, 10};  ///< sizes: inputs, hidden layers, classes
  LayerKind kind = LayerKind::dense;                ///< of hidden layers; the output layer is dense
  double density = 0.1;                             ///< of sparse ones
  uint32_t block_size = 16;                         ///< of sparse ones and pixelfly
  uint32_t butterfly_size = 16;                     ///< cells of pixelfly's pattern in a row
  uint32_t rank = 1;                                ///< of low rank and pixelfly
  Recipe recipe = Recipe::best;                     ///< not of sparse ones
  graph::Form form = graph::Form::fused;            ///< of structured ones
  std::string activation = "relu";                  ///< or gelu, tanh, sigmoid, none
  double dropout = 0;                               ///< after each hidden layer
  uint32_t micro_batches = 1;                       ///< that a batch is divided into
  bool grey = false;                                ///< images as the mean of their channels
  DropGrowSchedule drop_grow = {};
};

/// What a hidden layer of spiking neurons did in an epoch.
struct SpikingActivity {
  double firing = 0;     ///< fraction of its neurons that fire in a step
  double listed = 0;     ///< fraction that fire or pass a gradient, and are listed
  uint64_t dropped = 0;  ///< spikes and others for which lists had no room
};

struct EpochResult {
  uint32_t epoch = 0;                   ///< from 1
  double loss = 0;                      ///< mean over the training images of the epoch
  std::optional<double> accuracy = {};  ///< on these; not with micro-batches
  double validation_loss = 0;
  double validation_accuracy = 0;
  double seconds = 0;                          ///< on the host; 0 if an earlier process trained it
  std::vector<SpikingActivity> activity = {};  ///< of the hidden layers of a spiking network
};

struct TrainingProgress {
  uint32_t epoch = 1;
  uint64_t step = 0;  ///< steps that are finished, in all epochs together
  uint64_t steps = 0;
  double loss = 0;  ///< mean of the epoch so far
  std::optional<double> accuracy = {};
  const EpochResult* finished = nullptr;  ///< after the last step of an epoch
};

struct TrainingRun {
  std::string checkpoint = {};  ///< written after each epoch, and when training is stopped; empty: none
  /// Called after each step, and once more after each epoch; training stops if it returns false.
  std::function<bool(const TrainingProgress&)> progress = {};
};

struct TrainingResult {
  bool finished = false;
  uint64_t step = 0;  ///< steps that are finished, in all epochs together
  std::vector<EpochResult> epochs;
  uint32_t best_epoch = 0;  ///< with the best validation accuracy; 0: none yet
  /// Of the network after the best epoch, if training finished.
  std::optional<double> test_loss, test_accuracy;
  // Of this process:
  uint64_t steps_run = 0;
  double step_seconds = 0;  ///< mean; on a tiled machine the model's
  /// Mean seconds of each operation of Trainer::graph(), on a host; empty: too few steps to measure.
  std::vector<double> measured = {};
  uint64_t cycles = 0;             ///< of all training steps on a tiled machine
  uint64_t step_cycles = 0;        ///< of the last one
  uint64_t evaluation_cycles = 0;  ///< of evaluating one batch
  double seconds = 0;              ///< on the host
};

/// What is compared with the labels: cross-entropy of the numbers of spikes of the last layer, or of the
/// last, largest or mean potential of a last layer that does not spike; or the mean squared difference of
/// rates of spikes from 0.8 of the right class and 0.2 of the others.
enum class SpikingLoss : uint8_t { spikes, last, maximum, mean, rate };
std::string_view name_of(SpikingLoss loss);
SpikingLoss spiking_loss_named(std::string_view name);

/// Layers of spiking neurons and how to train them.
struct SpikingTrainingSettings : LearningSettings {
  SpikingTrainingSettings()
      : LearningSettings{
            .optimizer = OptimizerKind::adam, .lr = 0.002, .batch = 64, .epochs = 30, .validation = 0.1} {}

  std::vector<uint32_t> hidden = {128};  ///< sizes of hidden layers; inputs and classes are those of the data
  Neuron neuron = {};                    ///< of layers that spike
  bool recurrent = false;                ///< hidden layers
  uint32_t delay = 0;                    ///< of all layers but the first
  double decay = 0.9;                    ///< of potentials, in a step
  double current_decay = 0.8;            ///< of currents, if they have such
  double threshold = 1;
  double readout_decay = 0.9;    ///< of the potentials of a last layer that does not spike
  bool learns_dynamics = false;  ///< whether decays and thresholds, one of each for a layer, are learned
  double initial_firing = 0.03;  ///< fraction of hidden neurons that fire in a step before training
  SpikingLoss loss = SpikingLoss::maximum;
  /// Added to the loss of each hidden layer: so much times the mean of max(0, rate − cap)² over samples and
  /// neurons, where a rate is the fraction of steps in which a neuron fires.
  double activity_penalty = 0;
  double activity_cap = 0;
  /// ϑ_grad of the last epochs; it begins at `first_gradient_threshold`, and each epoch halves the distance.
  double gradient_threshold = -std::numeric_limits<double>::infinity();
  double first_gradient_threshold = -100;
  /// Neurons listed at most per step, sample and layer, of the last epochs; 0: all. It begins with all, and
  /// each epoch halves the distance.
  uint32_t most_listed = 0;

  double gradient_threshold_of(uint32_t epoch) const;  ///< from 0
  uint32_t most_listed_of(uint32_t epoch) const;
};

/// Settings that suit a data set of load_recordings(): Randman, MNIST and Braille reach the accuracies of
/// docs/spiking.md with them.
SpikingTrainingSettings usual_settings(std::string_view dataset);

/// What a trained network makes of a recording.
struct SpikingTraces {
  uint32_t steps = 0;
  uint32_t label = 0;
  uint32_t answer = 0;
  std::vector<uint32_t> sizes = {};                  ///< of inputs, then of the layers that spike
  std::vector<std::vector<SpikeEvent>> spikes = {};  ///< of the inputs, then of the layers that spike
  std::vector<float> potentials = {};  ///< [steps, classes], of a last layer that does not spike
};

/// A network with its data, on a machine. Samples are divided at random into those for training and for
/// validation, and shuffled for every epoch; the last incomplete batch is left out. All of it follows from
/// the seed: the same tiles and instruction set give the same bits.
class Trainer {
 public:
  // Throw UsageError for settings out of range or that do not go together, or do not fit the data. `threads`:
  // see graph::SessionOptions. One that only estimates has costs, without sessions and their memory, and
  // cannot train.

  /// Images are standardised per feature with the statistics of those trained with. Weights begin normally
  /// distributed with a standard deviation of 1/√inputs of their row, biases 0, unless the recipe says
  /// otherwise.
  Trainer(const TrainingSettings& settings, const ImageSplit& images, const Machine& machine,
          uint32_t threads = 0, bool only_estimates = false);
  /// A spiking network. Currents enter as the binary digits of their values in 255 parts, each digit a unit
  /// whose weight is that of its current times its place value. Weights begin normally distributed, scaled so
  /// that layer after layer fires as much as asked.
  Trainer(const SpikingTrainingSettings& settings, const RecordingSplit& recordings, const Machine& machine,
          uint32_t threads = 0, bool only_estimates = false);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  const LearningSettings& settings() const;
  /// All of them, by name, as one JSON object.
  const std::string& settings_json() const;
  uint64_t training_samples() const;
  uint64_t validation_samples() const;
  uint64_t test_samples() const;
  uint64_t steps_per_epoch() const;
  uint64_t parameters() const;  ///< values that are stored, learned or not

  /// Of a training step, and of evaluating one batch of `evaluation_batch()` samples.
  graph::RunCost step_cost() const;
  graph::RunCost evaluation_cost() const;
  uint32_t evaluation_batch() const;
  /// Of a training step; the operations of its cost are the graph's, in order.
  const graph::Graph& graph() const;

  /// Continues from a checkpoint, and gives the same bits as training without a break. Throws Error, and
  /// changes nothing, for a damaged file and one of other settings or data; of another machine, number of
  /// tiles or instruction set too unless different bits are allowed.
  void resume(const std::string& checkpoint, bool allow_different_bits = false);
  /// Steps that are finished, in all epochs together.
  uint64_t step() const;

  /// Trains to the end, and tests the network of the best epoch once. Throws Error if the machine's memory
  /// does not suffice, and when the loss is not finite.
  TrainingResult train(const TrainingRun& run = {});

  /// Of recordings for testing. Throws UsageError for networks that do not spike.
  SpikingTraces traces(size_t recording);

 private:
  std::unique_ptr<train::TrainerImpl> impl_;
};

}  // namespace tessera
