// Gradients of networks, and steps of their training.
#pragma once

#include <tessera/graph.h>
#include <tessera/optimizers.h>
#include <tessera/pipeline.h>
#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::graph {

/// Adds the gradients of a scalar loss with respect to values; none where the loss does not depend on one.
std::vector<std::optional<Value>> gradients(Value loss, const std::vector<Value>& of);

/// Parameters with settings of their own.
struct ParameterGroup {
  std::vector<Value> parameters = {};
  /// Further parameters by name, where `*` stands for any characters: "*.bias".
  std::vector<std::string> names = {};
  std::optional<double> lr_scale = {};      ///< factor of the learning rate, otherwise 1
  std::optional<double> weight_decay = {};  ///< instead of the optimizer's
  std::optional<bool> trust_ratio = {};     ///< for LAMB and LARS, otherwise true
  /// Where they lie, whatever TrainingOptions says of their sizes: `shard` instead of shard_from, and
  /// likewise those of the other options of such names.
  std::optional<bool> shard = {}, shard_weights = {}, shard_gradients = {};
  std::optional<bool> offload = {}, offload_weights = {}, offload_gradients = {};
};

struct TrainingOptions {
  Optimizer optimizer = Sgd{};
  /// Gradients are scaled so that their norm, over all parameters, is at most this.
  std::optional<double> clip_norm = {};
  /// The graph computes one micro-batch; gradients and scalar outputs are means over all micro-batches.
  uint32_t micro_batches = 1;
  /// How micro-batches go through the graph's stages.
  Pipeline pipeline = {};
  /// Parameters that keep their values.
  std::vector<Value> frozen = {};
  /// Settings of parameters. If several groups set the same for a parameter, the last one counts.
  std::vector<ParameterGroup> groups = {};
  /// The graph is one of this many replicas, each of which runs on an equal part of a machine's chips, or of
  /// which each in turn runs on a host; gradients and scalar outputs are means over replicas.
  uint32_t replicas = 1;
  /// Whether sums over replicas begin as soon as gradients are complete, and go over the links while the rest
  /// of the step is computed. Results are the same, bit for bit; sums take their memory earlier.
  bool overlap = true;
  /// With replicas, each keeps the optimizer's state of an equal part of every parameter of at least so many
  /// elements, updates this part, and gathers those of the others; none: each keeps and updates all, as
  /// a single replica must. Weights whose pattern may change are not divided.
  std::optional<uint64_t> shard_from = {};
  /// Of every parameter of at least so many elements each replica keeps an equal part alone, and gathers
  /// those of the others for each operation or call that takes it, for each micro-batch (Graph::shard); none:
  /// each keeps all, as a single replica must.
  std::optional<uint64_t> shard_weights_from = {};
  /// Of the sums over micro-batches of the gradients of parameters of at least so many elements, each replica
  /// keeps its part: each micro-batch's are summed over the replicas, for which each gets its part, and added
  /// to it. This includes shard_from, as updates of whole state take whole gradients. Sums over replicas come
  /// before those over micro-batches, so results may have other last bits; with one micro-batch there are
  /// none of these.
  std::optional<uint64_t> shard_gradients_from = {};
  /// The optimizer's state of every parameter of at least so many elements lies in streaming memory
  /// (Graph::offload): it is read and written once in a step. none: all of it lies on the tiles.
  std::optional<uint64_t> offload_from = {};
  /// So do parameters of at least so many elements, which are read before each operation or call that takes
  /// them, for each micro-batch, and written once in a step.
  std::optional<uint64_t> offload_weights_from = {};
  /// So do, with micro-batches, sums of the gradients of parameters of at least so many elements, which are
  /// read and written for each micro-batch.
  std::optional<uint64_t> offload_gradients_from = {};
  /// Whether parameters and state are fetched from there while the operations before are computed
  /// (Graph::set_prefetch). Results are the same, bit for bit; tiles need room for what two operations take.
  bool prefetch = false;
  std::optional<Type> partials = {};  ///< of partial sums of products; none: as the graph has them
  /// Type of sums of gradients over micro-batches, replicas and the passes of the graph's own loops. f32:
  /// gradients of 16 bits are added to them in FP32; those of a loop are then rounded, once. f16 or bf16:
  /// gradients of this type are summed in it, which loses those that are small beside the sum; gradients in
  /// FP32 are summed in FP32 all the same.
  Type sums = Type::f32;
  /// Type of the optimizer's state for each element: f32, f16 or bf16. Updates are computed in FP32.
  Type state = Type::f32;
  /// Rounding of 16-bit parameters and state, by numbers that replicas share, and of 16-bit partial sums.
  Rounding rounding = Rounding::nearest;
  Roundings roundings = {};  ///< of these one by one, where they differ
  uint64_t seed = 0;
  std::optional<LossScale> loss_scale = {};
};

/// Adds gradients of all parameters that the loss depends on, and their updates. The learning rate becomes an
/// input "lr", a scalar, and for bias corrections and stochastic rounding the number of the step becomes an
/// input "step", from 1; if micro-batches take an input of this name, it is that of the first. A loss scale
/// that may change is the state "loss_scale"; further state is the number of good steps since it changed,
/// "loss_scale.good_steps", and the number of steps that changed nothing, "loss_scale.skipped_steps", which
/// bias corrections do not count. Where it throws, the graph is as before.
void add_training(Value loss, const TrainingOptions& options = {});

}  // namespace tessera::graph
