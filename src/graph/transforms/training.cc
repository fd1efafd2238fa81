// Gradients and updates of all parameters.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/pipeline.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "graph/operation.h"
#include "graph/shards.h"
#include "graph/stages.h"
#include "graph/transforms/gradients.h"
#include "graph/transforms/layer_stages.h"
#include "graph/transforms/loss_scale.h"
#include "graph/transforms/split_backward.h"
#include "graph/transforms/transforms.h"
#include "graph/transforms/updates.h"

namespace tessera::graph {
namespace {

/// PyTorch's value, against a division by zero.
constexpr double kNormEpsilon = 1e-6;

void require_float_type(Type type, std::string_view what) {
  if (type != Type::f32 && type != Type::f16 && type != Type::bf16)
    throw UsageError(fmt::format("{} cannot be {}: use f32, f16 or bf16", what, name_of(type)));
}

void check_training(const TrainingOptions& options) {
  check(options.optimizer);
  for (const ParameterGroup& group : options.groups) {
    if (group.parameters.empty() && group.names.empty())
      throw UsageError("a group of parameters is empty: name some, such as '*.bias', or leave out the group");
    if (group.lr_scale) require_setting(kFromZero, "a factor of the learning rate", *group.lr_scale);
    if (group.weight_decay) require_setting(kFromZero, "the weight decay of a group", *group.weight_decay);
  }
  require_setting(kFromOne, "the number of replicas", options.replicas);
  check_sharding({.state = options.shard_from.has_value(),
                  .weights = options.shard_weights_from.has_value(),
                  .gradients = options.shard_gradients_from.has_value()},
                 options.groups, options.replicas);
  if (options.clip_norm)
    require_setting(*options.clip_norm > 0, "the clipping norm", *options.clip_norm, "positive");
  require_setting(kFromOne, "the number of micro-batches", options.micro_batches);
  require_float_type(options.state, "an optimizer's state");
  require_float_type(options.sums, "sums of gradients");
  if (options.loss_scale) check_loss_scale(*options.loss_scale);
}

/// Throws UsageError for options that name values of another graph, and for a pipeline that a single
/// micro-batch cannot pass through: it is not lowered as one.
void check_training(const TrainingOptions& options, const Graph& graph) {
  std::vector<Value> named = options.frozen;
  for (const ParameterGroup& group : options.groups)
    named.insert(named.end(), group.parameters.begin(), group.parameters.end());
  for (const Value& value : named)
    if (&value.owner() != &graph)
      throw UsageError("a value that is frozen, or in a group, belongs to another graph than the loss");
  if (options.micro_batches == 1 && options.pipeline != Pipeline{})
    pipeline_schedule(options.pipeline, graph.balanced_stages().value_or(stages_of(graph).count()),
                      options.micro_batches);
}

/// The stages by which sums and passes are divided; stages that sessions choose consist of whole layers.
Stages stages_of_training(const Graph& graph) {
  if (!has_stages(graph)) return {};
  return graph.balanced_stages() ? whole_layers_of(graph).stages : stages_of(graph);
}

/// The addends of a gradient that are computed on several stages, such as those of a table that the first and
/// the last stage share: each is summed on its own, so that none travels for each micro-batch.
std::vector<Value> addends_by_stage(Graph& graph, const std::vector<uint32_t>& stages, Value gradient) {
  const auto& n = graph.info(gradient.id).node;
  const auto is_sum = [](const Node& node) {
    return node.operation->traits.combines == Combines::adds && node.inputs.size() == 2;
  };
  if (stages.empty() || !n || !is_sum(graph.nodes()[*n])) return {gradient};
  std::vector<Value> addends;
  std::set<uint32_t> own;
  for (const ValueId id : graph.nodes()[*n].inputs) {
    const auto& from = graph.info(id).node;
    if (!from || !(graph.type(id) == gradient.type())) return {gradient};
    own.insert(stages[*from]);
    for (const Value& addend : addends_by_stage(graph, stages, graph.value(id))) addends.push_back(addend);
  }
  return own.size() > 1 || addends.size() > 2 ? addends : std::vector<Value>{gradient};
}

/// Throws UsageError if gradients of one 16-bit type are to be summed in another.
void check_sums(const TrainingOptions& options, const std::vector<Value>& gradients) {
  if (options.sums == Type::f32 || (options.micro_batches == 1 && options.replicas == 1)) return;
  for (const Value& gradient : gradients)
    if (const Type type = gradient.type().type; type != Type::f32 && type != options.sums)
      throw UsageError(fmt::format("gradients are {}, and their sums {}: use f32 or {}", name_of(type),
                                   name_of(options.sums), name_of(type)));
}

using Settings = std::map<ValueId, ParameterSettings>;

/// Parameters that are trained, and their gradients.
struct TrainedParameters {
  std::vector<Value> values, gradients;
};

/// Whether the state of a parameter's optimizer is divided among the replicas.
bool is_divided(const TrainingOptions& options, const ParameterSettings& own, const TensorType& parameter) {
  return options.replicas > 1 && own.shard && may_be_divided(parameter);
}

Attributes attributes_of_means(const TrainingOptions& options) {
  return {{"overlap", int64_t{options.overlap}}};
}

/// A replica's part of the mean of all replicas' gradients.
Value part_of_mean(const TrainingOptions& options, Value gradient, Value parameter) {
  return gradient.owner().apply("mean_shard", {gradient, parameter}, attributes_of_means(options))[0];
}

/// Replaces gradients of one micro-batch, whose sums over all micro-batches are divided among the replicas,
/// by what is added to these sums.
void divide_sums(Graph& graph, const Settings& settings, const TrainingOptions& options,
                 TrainedParameters& trained) {
  const auto first = static_cast<uint32_t>(graph.nodes().size());
  std::vector<size_t> divided;
  for (size_t i = 0; i < trained.values.size(); ++i) {
    const ParameterSettings& own = settings.at(trained.values[i].id);
    if (own.shard_gradients && is_divided(options, own, trained.values[i].type())) divided.push_back(i);
  }
  // Casts all before the first mean, so that means may share collectives.
  if (options.sums == Type::f32)
    for (const size_t i : divided) trained.gradients[i] = cast(trained.gradients[i], Type::f32);
  for (const size_t i : divided)
    trained.gradients[i] = part_of_mean(options, trained.gradients[i], trained.values[i]);
  graph.mark_backward(first);
}

/// Gradients and scalar outputs as means over micro-batches.
void repeat(Graph& graph, const Settings& settings, const TrainingOptions& options,
            TrainedParameters& trained) {
  for (const auto& [name, id] : graph.outputs())
    if (graph.type(id).elements() != 1)
      throw UsageError(fmt::format("the output '{}' is {}: with micro-batches outputs must be scalars", name,
                                   to_string(graph.type(id))));
  const Stages found = stages_of_training(graph);
  const std::vector<uint32_t>& stages = found.nodes;
  std::vector<Value> summed;
  std::vector<size_t> addends;
  for (const Value& gradient : trained.gradients) {
    const std::vector<Value> own = addends_by_stage(graph, stages, gradient);
    addends.push_back(own.size());
    summed.insert(summed.end(), own.begin(), own.end());
  }
  if (!stages.empty() && splits_backward(options.pipeline.kind)) split_backward(graph, found, summed);
  const std::vector<Value> sums =
      graph.repeat_for_micro_batches(options.micro_batches, summed, 1.0 / options.micro_batches,
                                     options.pipeline, options.sums == Type::f32);
  auto next = sums.begin();
  for (size_t i = 0; i < addends.size(); ++i) {
    const bool is_offloaded = settings.at(trained.values[i].id).offload_gradients;
    for (size_t addend = 0; addend < addends[i]; ++addend, ++next) {
      if (is_offloaded) graph.offload(*next);
      trained.gradients[i] = addend == 0 ? *next : trained.gradients[i] + *next;
    }
  }
}

/// Gradients and scalar outputs as means over replicas; each replica has its part of divided gradients.
void average(Graph& graph, const Settings& settings, const TrainingOptions& options,
             TrainedParameters& trained) {
  // Casts all before the first mean, so that the means are one collective.
  if (options.sums == Type::f32)
    for (Value& gradient : trained.gradients) gradient = cast(gradient, Type::f32);
  const Attributes attributes = attributes_of_means(options);
  const auto averaged = [&](Value of) { return graph.apply("mean_over_replicas", {of}, attributes)[0]; };
  for (size_t i = 0; i < trained.values.size(); ++i) {
    Value& gradient = trained.gradients[i];
    const Value& parameter = trained.values[i];
    if (gradient.type().sharded) continue;  // it is already a sum of means
    gradient = is_divided(options, settings.at(parameter.id), parameter.type())
                   ? part_of_mean(options, gradient, parameter)
                   : averaged(gradient);
  }
  for (const auto& [name, id] : std::map(graph.outputs()))
    if (graph.type(id).shape.empty()) graph.replace_output(name, averaged(graph.value(id)));
}

/// The sum of the squares of all gradients.
Value squares_of(const std::vector<Value>& gradients) {
  std::optional<Value> squares, of_parts;
  for (const Value& gradient : gradients) {
    const Value own = sum_of_squares(gradient);
    std::optional<Value>& sum = gradient.type().sharded ? of_parts : squares;
    sum = sum ? *sum + own : own;
  }
  if (of_parts) {
    const Value all = sum_over_replicas(*of_parts);
    squares = squares ? *squares + all : all;
  }
  return *squares;
}

/// Scales all gradients alike, in FP32: a 16-bit factor may be 0, and so may a 16-bit result.
void clip(Graph& graph, std::vector<Value>& gradients, double norm, Value squares) {
  const Value factor = minimum(reciprocal(sqrt(squares) + kNormEpsilon) * norm, graph.constant("", {}, {1}));
  for (Value& gradient : gradients) gradient = cast(gradient, Type::f32) * factor;
}

/// Learning rates of parameters: the rate of all, times their factors.
class LearningRates {
 public:
  LearningRates(const Settings& settings, Value lr) : by_factor_{{1, lr}} {
    for (const auto& [parameter, own] : settings)
      if (!by_factor_.contains(own.lr_scale)) by_factor_.emplace(own.lr_scale, lr * own.lr_scale);
  }

  Value of(const ParameterSettings& settings) const { return by_factor_.at(settings.lr_scale); }

 private:
  std::map<double, Value> by_factor_;
};

TrainedParameters trained_by(Value loss, Graph& graph, const TrainingOptions& options) {
  const std::vector<Value>& frozen = options.frozen;
  std::vector<Value> all;
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (graph.info(id).kind == Kind::parameter && std::ranges::find(frozen, id, &Value::id) == frozen.end())
      all.push_back(graph.value(id));
  const std::vector<std::optional<Value>> found = gradients(loss, all, options.sums == Type::f32);
  TrainedParameters trained;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!found[i]) continue;
    trained.values.push_back(all[i]);
    trained.gradients.push_back(*found[i]);
  }
  if (trained.values.empty()) throw UsageError("the loss depends on no parameter that is trained");
  return trained;
}

/// Partial sums are rounded stochastically by other random numbers than updates.
void set_partial_sums(Graph& graph, const TrainingOptions& options) {
  PartialSums sums = graph.partial_sums();
  if (options.partials) sums.type = options.partials;
  if (options.roundings.partials.value_or(options.rounding) == Rounding::stochastic) {
    sums.rounding = Rounding::stochastic;
    sums.seed = base::seed_of_substream(options.seed, UINT32_MAX, 2);
  } else if (options.roundings.partials) {
    sums.rounding = Rounding::nearest;
    sums.seed = 0;
  }
  graph.set_partial_sums(sums);
}

void extend(Graph& graph, Value loss, const TrainingOptions& options) {
  const Settings settings = settings_of_parameters(graph, options);
  place_weights(graph, settings, options.replicas > 1);
  if (options.prefetch) graph.set_prefetch(true);
  set_partial_sums(graph, options);
  const auto lr = [&] { return input_named(graph, "lr", Type::f32); };
  // Before the gradients, as an update may run together with its gradient.
  std::optional<LearningRates> lrs;
  if (options.micro_batches == 1 && options.replicas == 1 && !options.loss_scale) lrs.emplace(settings, lr());
  std::optional<ScaledLoss> scaled;
  if (options.loss_scale) scaled.emplace(loss, *options.loss_scale);
  TrainedParameters trained = trained_by(scaled ? scaled->loss() : loss, graph, options);
  auto& [parameters, its_gradients] = trained;
  const auto added = static_cast<uint32_t>(graph.nodes().size());
  if (options.replicas != 1) graph.replicate(options.replicas);
  check_sums(options, its_gradients);
  if (options.micro_batches != 1) {
    divide_sums(graph, settings, options, trained);
    repeat(graph, settings, options, trained);
  }
  if (options.replicas != 1) average(graph, settings, options, trained);
  if (scaled)
    for (Value& gradient : its_gradients) gradient = scaled->unscaled(gradient);
  const bool may_skip = scaled && scaled->may_change();
  std::optional<Value> squares, skipped;
  if (options.clip_norm || may_skip) squares = squares_of(its_gradients);
  if (options.clip_norm) clip(graph, its_gradients, *options.clip_norm, *squares);
  if (may_skip) skipped = scaled->skipped_steps();
  if (!lrs) lrs.emplace(settings, may_skip ? scaled->lr_unless_skipped(lr(), *squares) : lr());
  Updates updates(graph, options, skipped);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSettings& own = settings.at(parameters[i].id);
    const Value current =
        its_gradients[i].type().sharded ? graph.apply("shard", {parameters[i]})[0] : parameters[i];
    updates.add(own, {parameters[i], current, its_gradients[i], lrs->of(own)});
  }
  updates.gather();
  if (may_skip) scaled->adapt(*squares);
  graph.mark_backward(options.micro_batches == 1 ? added : 0);
  if (options.memory_budget) graph.set_memory_budget(options.memory_budget);
  verify_if_asserting(graph);
}

}  // namespace

void add_training(Value loss, const TrainingOptions& options) {
  check_training(options);
  Graph& graph = loss.owner();
  Graph before = graph;
  try {
    divide_into_stages(graph, options.stages);
    check_training(options, graph);
    extend(graph, loss, options);
  } catch (...) {
    graph = std::move(before);
    throw;
  }
}

}  // namespace tessera::graph
