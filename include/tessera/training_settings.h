// How image classifiers are trained: layers, optimizer and schedule; and settings for all kinds of networks.
#pragma once

#include <tessera/drop_grow.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>
#include <tessera/layers.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

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
  /// statistics of all training images, including the images for validation.
  paper,
  /// Initial values and learning rates for each factor, for Adam.
  best,
};
enum class OptimizerKind : uint8_t { sgd, momentum, nesterov, adam, adamw, lamb, lars };

// "dense", "static", "dynamic", "butterfly", …; "paper", "best"; "sgd", …. The functions that take a name
// throw UsageError, listing the names, for any other name.
std::string_view name_of(LayerKind kind);
std::string_view name_of(Recipe recipe);
std::string_view name_of(OptimizerKind kind);
LayerKind layer_kind_named(std::string_view name);
Recipe recipe_named(std::string_view name);
OptimizerKind optimizer_named(std::string_view name);

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
  /// How the learning rate changes; with `steps` 0, the schedule has all steps of the training.
  graph::Schedule lr_schedule = {};
  std::optional<double> clip_norm = {};  ///< maximum norm of the gradient
  uint32_t batch = 50;
  uint32_t epochs = 15;
  uint64_t seed = 0;
  double validation = 0.15;  ///< fraction of the training samples that is set aside for validation
  /// See graph::SessionOptions::host_io. Training gives the same results, so checkpoints do not depend on it.
  bool host_io = false;

  /// Learning rate of a step, counted from 0, in a training of `steps` steps.
  double lr_of(uint64_t step, uint64_t steps) const;
};

/// Smallest number of elements of values that are divided, or kept beside the chips, if an option gives none.
inline constexpr uint64_t kLargeValue = 8192;

/// How a step is divided among the chips of a machine, and where its values lie.
struct PlacementSettings {
  uint32_t micro_batches = 1;  ///< number of micro-batches into which a batch is divided
  /// Whether only the inputs of layers, or of blocks of layers, are kept for the backward pass.
  bool recompute = false;
  /// Instead of `recompute`: a number of bytes of each tile, or of a host in all, or graph::kMachineMemory,
  /// to fit which as few layers or blocks as possible are recomputed. See
  /// graph::TrainingOptions::memory_budget.
  std::optional<uint64_t> memory_budget = {};
  /// Number of replicas, on equal parts of a machine's chips, among which a batch is divided.
  uint32_t replicas = 1;
  bool overlap = true;  ///< see graph::TrainingOptions::overlap
  /// Smallest number of elements for which a parameter's optimizer state is divided among the replicas; see
  /// graph::TrainingOptions::shard_from.
  std::optional<uint64_t> shard_from = {};
  /// Smallest number of elements for which a parameter itself is divided among the replicas; see
  /// graph::TrainingOptions::shard_weights_from.
  std::optional<uint64_t> shard_weights_from = {};
  /// Smallest number of elements of a parameter for which the sum of its gradients over micro-batches is
  /// divided among the replicas; see graph::TrainingOptions::shard_gradients_from.
  std::optional<uint64_t> shard_gradients_from = {};
  /// Smallest number of elements for which a parameter's optimizer state is in streaming memory; see
  /// graph::TrainingOptions::offload_from.
  std::optional<uint64_t> offload_from = {};
  /// Smallest number of elements for which a parameter itself, or the sum of its gradients over
  /// micro-batches, is in streaming memory; see graph::TrainingOptions::offload_weights_from and
  /// offload_gradients_from.
  std::optional<uint64_t> offload_weights_from = {};
  std::optional<uint64_t> offload_gradients_from = {};
  bool prefetch = false;  ///< see graph::TrainingOptions::prefetch
  /// Groups of parameters with settings of their own, by name only; see graph::TrainingOptions::groups.
  /// LearningSettings::excluded overrides them.
  std::vector<graph::ParameterGroup> groups = {};
};

/// A multilayer perceptron and how to train it.
struct TrainingSettings : LearningSettings {
  std::vector<uint32_t> layers = {1024, 1024, 10};  ///< sizes: inputs, hidden layers, classes
  LayerKind kind = LayerKind::dense;                ///< kind of the hidden layers; the output layer is dense
  double density = 0.1;                             ///< density of sparse layers
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

}  // namespace tessera
