// Gradients of networks, and steps of their training.
#pragma once

#include <tessera/graph.h>
#include <tessera/optimizers.h>
#include <tessera/pipeline.h>
#include <tessera/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::graph {

/// Adds the gradients of a scalar loss with respect to the values `of` to the graph, and returns them in the
/// order of these values; an entry is empty if the loss does not depend on its value.
std::vector<std::optional<Value>> gradients(Value loss, const std::vector<Value>& of);

/// Parameters with settings of their own.
struct ParameterGroup {
  std::vector<Value> parameters = {};
  /// Further parameters by name, where `*` stands for any characters: "*.bias".
  std::vector<std::string> names = {};
  std::optional<double> lr_scale = {};      ///< factor of the learning rate, otherwise 1
  std::optional<double> weight_decay = {};  ///< instead of the optimizer's weight decay
  std::optional<bool> trust_ratio = {};     ///< for LAMB and LARS, otherwise true
  /// Where these parameters lie, whatever their sizes: `shard` replaces TrainingOptions::shard_from, and each
  /// other member the option of the same name with the suffix `_from`.
  std::optional<bool> shard = {}, shard_weights = {}, shard_gradients = {};
  std::optional<bool> offload = {}, offload_weights = {}, offload_gradients = {};
};

/// Stages of whole layers (Graph::begin_stages), for graphs whose calls and loops name none.
struct LayerStages {
  /// Number of stages among which sessions and estimates divide the layers (Graph::balance_stages).
  std::optional<uint32_t> count = {};
  /// The stage of first layers, and of further layers if necessary, by name: the name of a parameter, or the
  /// part of several names before a '.', which stands for the first of their layers. A layer without a name
  /// is on the stage of the layer before.
  std::map<std::string, uint32_t> of_layers = {};
};

struct TrainingOptions {
  Optimizer optimizer = Sgd{};
  /// Gradients are scaled so that their norm, over all parameters, is at most this.
  std::optional<double> clip_norm = {};
  /// The graph computes one micro-batch; gradients and scalar outputs are means over all micro-batches.
  uint32_t micro_batches = 1;
  /// none: the stages that calls and loops name; if they name none, sessions choose.
  LayerStages stages = {};
  /// How micro-batches pass through the graph's stages.
  Pipeline pipeline = {};
  /// Recomputes the forward passes of as few calls and stages as fit this number of bytes of each tile's
  /// memory, or of a host's memory in all, or kMachineMemory (Graph::set_memory_budget).
  std::optional<uint64_t> memory_budget = {};
  /// Parameters that keep their values.
  std::vector<Value> frozen = {};
  /// Groups of parameters with settings of their own. If several groups give a parameter the same setting,
  /// the last one counts.
  std::vector<ParameterGroup> groups = {};
  /// Number of replicas of the graph. Each runs on an equal part of a machine's chips; on a host they run one
  /// after the other. Gradients and scalar outputs are means over replicas.
  uint32_t replicas = 1;
  /// Whether sums over replicas begin as soon as gradients are complete, and go over the links while the rest
  /// of the step is computed. Results are the same, bit for bit; the sums take up memory earlier.
  bool overlap = true;
  /// Smallest number of elements for which a parameter's optimizer state is divided among the replicas: each
  /// replica keeps the state of an equal part of the parameter, updates this part, and gathers the other
  /// parts from the other replicas. none: each replica keeps all state and makes all updates, the only choice
  /// with a single replica. Weights whose pattern may change are not divided.
  std::optional<uint64_t> shard_from = {};
  /// Smallest number of elements for which a parameter itself is divided among the replicas: each replica
  /// keeps an equal part only, and gathers the other parts for each operation or call that takes the
  /// parameter, for each micro-batch (Graph::shard). none: each replica keeps whole parameters, the only
  /// choice with a single replica.
  std::optional<uint64_t> shard_weights_from = {};
  /// Smallest number of elements of a parameter for which the sum of its gradients over micro-batches is
  /// divided among the replicas: the gradient of each micro-batch is summed over the replicas, and each
  /// replica adds its part of the result to its part of the sum. This includes shard_from, as updates of
  /// whole state take whole gradients. Gradients are summed over replicas before they are summed over
  /// micro-batches, so results may differ in their last bits; with one micro-batch nothing is summed over
  /// micro-batches.
  std::optional<uint64_t> shard_gradients_from = {};
  /// Smallest number of elements for which a parameter's optimizer state lies in streaming memory
  /// (Graph::offload), where it is read and written once per step. none: all state lies on the tiles.
  std::optional<uint64_t> offload_from = {};
  /// Smallest number of elements for which a parameter itself lies in streaming memory. It is read before
  /// each operation or call that takes it, for each micro-batch, and written once per step.
  std::optional<uint64_t> offload_weights_from = {};
  /// Smallest number of elements of a parameter for which, with micro-batches, the sum of its gradients lies
  /// in streaming memory, where it is read and written for each micro-batch.
  std::optional<uint64_t> offload_gradients_from = {};
  /// Whether parameters and state are fetched from streaming memory while the operations before are computed
  /// (Graph::set_prefetch). Results are the same, bit for bit; tiles need memory for the operands of two
  /// operations.
  bool prefetch = false;
  std::optional<Type> partials = {};  ///< type of partial sums of products; none: as the graph says
  /// Type of sums of gradients over micro-batches, replicas and the passes of the graph's own loops. f32:
  /// gradients of 16 bits are added to them in FP32, and the sums of a loop are then rounded once. f16 or
  /// bf16: gradients of this type are summed in it, which loses gradients that are small beside the sum;
  /// gradients in FP32 are summed in FP32 all the same.
  Type sums = Type::f32;
  /// Type of the optimizer's state for each element: f32, f16 or bf16. Updates are computed in FP32.
  Type state = Type::f32;
  /// Rounding of 16-bit parameters and state, with random numbers that replicas share, and of 16-bit partial
  /// sums.
  Rounding rounding = Rounding::nearest;
  Roundings roundings = {};  ///< single roundings that replace `rounding`
  uint64_t seed = 0;
  std::optional<LossScale> loss_scale = {};
};

/// Adds gradients of all parameters that the loss depends on, and their updates. The learning rate becomes an
/// input "lr", a scalar, and for bias corrections and stochastic rounding the number of the step becomes an
/// input "step", from 1; if micro-batches take an input of this name, the first micro-batch's number counts.
/// A loss scale that may change is the state "loss_scale"; further state is the number of good steps since it
/// changed, "loss_scale.good_steps", and the number of steps that changed nothing,
/// "loss_scale.skipped_steps", which bias corrections do not count. If it throws, the graph is unchanged.
void add_training(Value loss, const TrainingOptions& options = {});

}  // namespace tessera::graph
