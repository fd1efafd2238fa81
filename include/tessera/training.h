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
  /// Spikes: events[begin[i]] to events[begin[i + 1] - 1] belong to recording i, sorted by step, then by
  /// unit, without duplicates: several events of a unit in a step are one spike.
  std::vector<uint64_t> begin = {0};
  std::vector<SpikeEvent> events = {};
  /// Currents, recording after recording, each [steps, units]. A set with currents has no spikes.
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
  // Numbers of events that are left out:
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
/// the threshold do not fire, nor do pixels whose time is not before the end of the recording.
struct LatencySettings {
  double tau = 20;  ///< time constant, in steps
  double threshold = 0.2;
};
/// Latency-coded images, with one unit per pixel of each channel.
Recordings latency_coded(const ImageSet& images, uint32_t steps, const LatencySettings& settings = {});

/// How recordings are read and divided into time steps. Settings that are 0 get the defaults of
/// load_recordings() for the data set.
struct RecordingSettings {
  uint32_t steps = 0;
  double seconds = 0;      ///< length of the window, from the beginning of each recording, that is divided
                           ///< into steps
  uint32_t crop = 0;       ///< side of the central square of a sensor that is kept; 0: the whole sensor
  uint32_t downscale = 0;  ///< side of the squares of pixels that are merged into one
  double delta = 0.02;     ///< change of a current, from 0 to 1, for each event of "braille-delta"
  double test = 0.2;       ///< fraction held out for testing, if a data set has no test set
  LatencySettings latency = {};
  RandmanSettings randman = {};
  uint64_t seed = 0;  ///< seed of the division into training and test set, and of Randman
};

/// The data sets that load_recordings() knows.
std::span<const std::string_view> recording_sets();

/// Loads a data set from a folder, or from its usual subfolder. By default it has these steps, seconds and
/// `downscale`:
///
///     randman        100            made from the seed, without files
///     mnist-latency  100            MNIST, as load_images() finds it
///     braille        152            taxels.npy, lengths.npy, labels.npy: currents
///     braille-delta  152            braille's files; one unit for rises and one for falls by `delta`
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

/// The pattern without the blocks `drop` and with the blocks `grow`. Throws UsageError if a grown block is
/// already stored.
Pattern replaced(const Pattern& pattern, std::span<const BlockPosition> drop,
                 std::span<const BlockPosition> grow);

// The training loop.

/// Kind of the hidden layers. The kinds after dynamic_sparse are structures of layers.h.
enum class LayerKind : uint8_t {
  dense,
  static_sparse,   ///< blocks with a fixed pattern
  dynamic_sparse,  ///< blocks are dropped and grown during training
  butterfly,
  bpbp,
  pixelfly,
  fastfood,
  circulant,
  low_rank,
  monarch,
  block_butterfly,
};
/// Initial values and learning rates of dense and structured networks.
enum class Recipe : uint8_t {
  /// As published (Thomas et al. 2018, Dao et al. 2019): hidden layers with the initial values of each
  /// structure, an output layer uniform up to ±1/√inputs, one learning rate; features are standardised by the
  /// statistics of all training images, including those for validation.
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

/// When dynamic layers drop blocks and grow the same number.
struct DropGrowSchedule {
  DropGrowKind kind = DropGrowKind::rigl;
  double change = 0.3;   ///< fraction of the blocks that is replaced at the beginning; decays to 0 as a
                         ///< cosine
  uint32_t every = 100;  ///< number of steps between changes
  double until = 0.75;   ///< fraction of the steps after which patterns stay fixed

  /// The fraction to replace before a step, counted from 0.
  double fraction(uint64_t step, uint64_t steps) const;
};

/// Learning settings of all kinds of networks.
struct LearningSettings {
  OptimizerKind optimizer = OptimizerKind::momentum;
  double momentum = 0.9;             ///< for momentum, nesterov and lars
  graph::Betas betas = {};           ///< for adam, adamw and lamb
  bool bias_correction = true;       ///< for adam, adamw and lamb
  double trust_coefficient = 0.001;  ///< for lars
  double weight_decay = 0;
  /// Parameters without weight decay and trust ratio, by names in which `*` stands for any characters.
  std::vector<std::string> excluded = {};
  double lr = 0.001;
  /// How the learning rate changes; 0 `steps`: all steps of the training.
  graph::Schedule lr_schedule = {};
  std::optional<double> clip_norm = {};  ///< maximum norm of the gradient
  uint32_t batch = 50;
  uint32_t epochs = 15;
  uint64_t seed = 0;
  double validation = 0.15;  ///< fraction of the samples for training

  /// Learning rate of a step, counted from 0, in a training of `steps` steps.
  double lr_of(uint64_t step, uint64_t steps) const;
};

/// A multilayer perceptron and how to train it.
struct TrainingSettings : LearningSettings {
  std::vector<uint32_t> layers = {1024, 1024, 10};  ///< sizes: inputs, hidden layers, classes
  LayerKind kind = LayerKind::dense;                ///< kind of the hidden layers; the output layer is dense
  double density = 0.1;                             ///< of sparse layers
  uint32_t block_size = 16;                         ///< for sparse layers and pixelfly
  uint32_t butterfly_size = 16;                     ///< cells of pixelfly's pattern in a row
  uint32_t rank = 1;                                ///< for low rank and pixelfly
  Recipe recipe = Recipe::best;                     ///< not for sparse layers
  graph::Form form = graph::Form::fused;            ///< form of structured layers
  std::string activation = "relu";                  ///< or gelu, tanh, sigmoid, none
  double dropout = 0;                               ///< after each hidden layer
  uint32_t micro_batches = 1;                       ///< number of micro-batches into which a batch is divided
  bool grey = false;                                ///< whether images are reduced to the mean of their
                                                    ///< channels
  DropGrowSchedule drop_grow = {};
};

/// Activity of a hidden layer of spiking neurons in an epoch.
struct SpikingActivity {
  double firing = 0;     ///< fraction of its neurons that fire in a step
  double listed = 0;     ///< fraction that fire or pass a gradient, and are listed
  uint64_t dropped = 0;  ///< spikes and candidates that did not fit in the lists
};

struct EpochResult {
  uint32_t epoch = 0;                   ///< from 1
  double loss = 0;                      ///< mean over the training images of the epoch
  std::optional<double> accuracy = {};  ///< on the training images; none with micro-batches
  double validation_loss = 0;
  double validation_accuracy = 0;
  double seconds = 0;                          ///< time on the host; 0 if an earlier process trained the
                                               ///< epoch
  std::vector<SpikingActivity> activity = {};  ///< of the hidden layers of a spiking network
};

struct TrainingProgress {
  uint32_t epoch = 1;
  uint64_t step = 0;  ///< finished steps, over all epochs
  uint64_t steps = 0;
  double loss = 0;  ///< mean of the epoch so far
  std::optional<double> accuracy = {};
  const EpochResult* finished = nullptr;  ///< after the last step of an epoch
};

struct TrainingRun {
  std::string checkpoint = {};  ///< file written after each epoch, and when training is stopped; empty: none
  /// Called after each step, and the evaluation that ends its epoch if it does; training stops if it returns
  /// false.
  std::function<bool(const TrainingProgress&)> progress = {};
};

struct TrainingResult {
  bool finished = false;
  uint64_t step = 0;  ///< finished steps, over all epochs
  std::vector<EpochResult> epochs;
  uint32_t best_epoch = 0;  ///< with the best validation accuracy; 0: none yet
  /// Results of the network after the best epoch, if training finished.
  std::optional<double> test_loss, test_accuracy;
  // Figures of this process alone:
  uint64_t steps_run = 0;
  double step_seconds = 0;  ///< mean time of a step; on a tiled machine the model's
  /// Mean seconds of each operation of Trainer::graph(), on a host; empty: too few steps to measure.
  std::vector<double> measured = {};
  uint64_t cycles = 0;             ///< cycles of all training steps on a tiled machine
  uint64_t step_cycles = 0;        ///< cycles of the last training step
  uint64_t evaluation_cycles = 0;  ///< cycles of evaluating one batch
  double seconds = 0;              ///< on the host
};

/// The loss of a spiking network: the cross-entropy of the last layer's numbers of spikes, or of the last,
/// largest or mean potential of a last layer that does not spike; or the mean squared difference between
/// firing rates and their targets, 0.8 for the right class and 0.2 for the others.
enum class SpikingLoss : uint8_t { spikes, last, maximum, mean, rate };
std::string_view name_of(SpikingLoss loss);
SpikingLoss spiking_loss_named(std::string_view name);

/// Layers of spiking neurons and how to train them.
struct SpikingTrainingSettings : LearningSettings {
  SpikingTrainingSettings()
      : LearningSettings{
            .optimizer = OptimizerKind::adam, .lr = 0.002, .batch = 64, .epochs = 30, .validation = 0.1} {}

  std::vector<uint32_t> hidden = {128};  ///< sizes of hidden layers; inputs and classes follow from the data
  Neuron neuron = {};                    ///< neurons of layers that spike
  bool recurrent = false;                ///< whether hidden layers are recurrent
  uint32_t delay = 0;                    ///< delay of all layers but the first
  double decay = 0.9;                    ///< factor by which potentials decay per step
  double current_decay = 0.8;            ///< factor by which currents decay per step, for synaptic neurons
  double threshold = 1;
  double readout_decay = 0.9;    ///< decay of the potentials of a last layer that does not spike
  bool learns_dynamics = false;  ///< whether decays and thresholds, one of each per layer, are learned
  double initial_firing = 0.03;  ///< fraction of hidden neurons that fire in a step before training
  SpikingLoss loss = SpikingLoss::maximum;
  /// Factor of a penalty that each hidden layer adds to the loss: the mean of max(0, rate − activity_cap)²
  /// over samples and neurons, where the rate is the fraction of steps in which a neuron fires.
  double activity_penalty = 0;
  double activity_cap = 0;
  /// ϑ_grad of the last epochs. It begins at `first_gradient_threshold`, and each epoch halves the distance.
  double gradient_threshold = -std::numeric_limits<double>::infinity();
  double first_gradient_threshold = -100;
  /// Maximum number of neurons listed per step, sample and layer in the last epochs; 0: all neurons. It
  /// begins with all neurons, and each epoch halves the distance.
  uint32_t most_listed = 0;

  double gradient_threshold_of(uint32_t epoch) const;  ///< epochs count from 0
  uint32_t most_listed_of(uint32_t epoch) const;
};

/// Settings that suit a data set of load_recordings(). With them, Randman, MNIST and Braille reach the
/// accuracies of docs/spiking.md.
SpikingTrainingSettings usual_settings(std::string_view dataset);

/// The response of a trained network to a recording.
struct SpikingTraces {
  uint32_t steps = 0;
  uint32_t label = 0;
  uint32_t answer = 0;
  std::vector<uint32_t> sizes = {};                  ///< numbers of inputs, then of the neurons of each layer
                                                     ///< that spikes
  std::vector<std::vector<SpikeEvent>> spikes = {};  ///< spikes of the inputs, then of the layers that spike
  std::vector<float> potentials = {};  ///< potentials of a last layer that does not spike: [steps, classes]
};

/// A network with its data, on a machine. Samples are divided at random into training and validation samples,
/// and shuffled for every epoch; the last incomplete batch is left out. The seed determines all random
/// choices: with the same tiles and instruction set, training gives the same bits.
class Trainer {
 public:
  // Throw UsageError for settings that are out of range, contradict each other or do not fit the data.
  // `threads`: see graph::SessionOptions. With `only_estimates`, a trainer computes costs without sessions
  // and their memory, and cannot train.

  /// A multilayer perceptron. Images are standardised per feature by the statistics of the training samples.
  /// Initial weights are normally distributed with a standard deviation of 1/√(inputs of their row), biases
  /// 0, unless the recipe says otherwise.
  Trainer(const TrainingSettings& settings, const ImageSplit& images, const Machine& machine,
          uint32_t threads = 0, bool only_estimates = false);
  /// A spiking network. Currents enter as the binary digits of their values in 255 parts, each digit as a
  /// unit whose weight is the current's weight times the digit's place value. Initial weights are normally
  /// distributed, scaled layer after layer so that the layer fires at the rate `initial_firing`.
  Trainer(const SpikingTrainingSettings& settings, const RecordingSplit& recordings, const Machine& machine,
          uint32_t threads = 0, bool only_estimates = false);
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
  uint64_t parameters() const;  ///< number of stored values, learned or not

  /// Cost of a training step, and of evaluating one batch of evaluation_batch() samples.
  graph::RunCost step_cost() const;
  graph::RunCost evaluation_cost() const;
  uint32_t evaluation_batch() const;
  /// The graph of a training step; RunCost::operations of step_cost() are its operations, in order.
  const graph::Graph& graph() const;

  /// Continues from a checkpoint, and gives the same bits as training without a break. Throws Error, and
  /// changes nothing, for a damaged file or a checkpoint of other settings or data, and unless different bits
  /// are allowed also for a checkpoint of another machine, number of tiles or instruction set.
  void resume(const std::string& checkpoint, bool allow_different_bits = false);
  /// Finished steps, over all epochs.
  uint64_t step() const;

  /// Trains to the end, then tests the network of the best epoch once. Throws Error if the machine's memory
  /// does not suffice, and when the loss is not finite.
  TrainingResult train(const TrainingRun& run = {});

  /// The response to a recording of the test set. Throws UsageError for networks that do not spike.
  SpikingTraces traces(size_t recording);

 private:
  std::unique_ptr<train::TrainerImpl> impl_;
};

}  // namespace tessera
