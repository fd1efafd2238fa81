// Gradients and updates of all parameters.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/operation.h"
#include "graph/transforms/transforms.h"
#include "graph/transforms/updates.h"

namespace tessera::model {
namespace {

/// PyTorch's, against a division by zero.
constexpr double kNormEpsilon = 1e-6;

void check_training(const TrainingOptions& options) {
  check(options.optimizer);
  for (const ParameterGroup& group : options.groups) {
    if (group.lr_scale)
      require_setting(std::isfinite(*group.lr_scale) && *group.lr_scale >= 0, "a factor of the learning rate",
                      *group.lr_scale, "at least 0");
    if (group.decay)
      require_setting(std::isfinite(*group.decay) && *group.decay >= 0, "the weight decay of a group",
                      *group.decay, "at least 0");
  }
  require_setting(options.replicas > 0, "the number of replicas", options.replicas, "at least 1");
  if (options.clip_norm)
    require_setting(*options.clip_norm > 0, "the clipping norm", *options.clip_norm, "positive");
  require_setting(options.micro_batches > 0, "the number of micro-batches", options.micro_batches,
                  "at least 1");
}

/// Throws UsageError for options that name values of another graph.
void check_training(const TrainingOptions& options, const Graph& graph) {
  std::vector<Value> named = options.frozen;
  for (const ParameterGroup& group : options.groups)
    named.insert(named.end(), group.parameters.begin(), group.parameters.end());
  for (const Value& value : named)
    if (&value.owner() != &graph)
      throw UsageError("a value that is frozen, or in a group, is of another graph than the loss");
}

/// Gradients and scalar outputs as means over micro-batches.
void repeat(Graph& graph, std::vector<Value>& gradients, uint32_t micro_batches) {
  for (const auto& [name, id] : graph.outputs())
    if (graph.type(id).elements() != 1)
      throw UsageError(fmt::format("the output '{}' is {}: with micro-batches outputs must be scalars", name,
                                   to_string(graph.type(id))));
  gradients = graph.repeat_for_micro_batches(micro_batches, gradients, 1.0 / micro_batches);
}

/// Gradients and scalar outputs as means over replicas.
void average(Graph& graph, std::vector<Value>& gradients) {
  const auto mean = [&](Value value) { return graph.apply("mean_over_replicas", {value})[0]; };
  for (Value& gradient : gradients) gradient = mean(gradient);
  for (const auto& [name, id] : std::map(graph.outputs()))
    if (graph.type(id).shape.empty()) graph.replace_output(name, mean(graph.value(id)));
}

/// Scales all gradients alike.
void clip(Graph& graph, std::vector<Value>& gradients, double norm) {
  std::optional<Value> squares;
  for (const Value& gradient : gradients) {
    const Value own = graph.apply("sum_of_squares", {gradient}, {{"over", "all"}})[0];
    squares = squares ? *squares + own : own;
  }
  const Value factor = minimum(reciprocal(sqrt(*squares) + kNormEpsilon) * norm, graph.constant("", {}, {1}));
  for (Value& gradient : gradients) gradient = gradient * cast(factor, gradient.type().type);
}

/// Learning rates of parameters: the input, times their factors.
class LearningRates {
 public:
  LearningRates(Graph& graph, const std::map<ValueId, ParameterSettings>& settings)
      : by_factor_{{1, input_named(graph, "lr", Type::f32)}} {
    for (const auto& [parameter, own] : settings)
      if (!by_factor_.contains(own.lr_scale))
        by_factor_.emplace(own.lr_scale, by_factor_.at(1) * own.lr_scale);
  }

  Value of(const ParameterSettings& settings) const { return by_factor_.at(settings.lr_scale); }

 private:
  std::map<double, Value> by_factor_;
};

}  // namespace

void add_training(Value loss, const TrainingOptions& options) {
  check_training(options);
  Graph& graph = loss.owner();
  check_training(options, graph);
  const std::map<ValueId, ParameterSettings> settings = settings_of_parameters(graph, options);
  std::vector<Value> all;
  for (const auto& [id, own] : settings)
    if (std::ranges::find(options.frozen, id, &Value::id) == options.frozen.end())
      all.push_back(graph.value(id));
  // Before the gradients, as an update may run together with its gradient.
  std::optional<LearningRates> lrs;
  if (options.micro_batches == 1 && options.replicas == 1) lrs.emplace(graph, settings);
  const std::vector<std::optional<Value>> found = gradients(loss, all);
  std::vector<Value> parameters, its_gradients;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!found[i]) continue;
    parameters.push_back(all[i]);
    its_gradients.push_back(*found[i]);
  }
  if (parameters.empty()) throw UsageError("the loss depends on no parameter that is trained");
  const auto added = static_cast<uint32_t>(graph.nodes().size());
  if (options.replicas != 1) graph.replicate(options.replicas);
  if (options.micro_batches != 1) repeat(graph, its_gradients, options.micro_batches);
  if (options.replicas != 1) average(graph, its_gradients);
  if (options.clip_norm) clip(graph, its_gradients, *options.clip_norm);
  if (!lrs) lrs.emplace(graph, settings);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSettings& own = settings.at(parameters[i].id);
    add_update(options.optimizer, own, {parameters[i], its_gradients[i], lrs->of(own)});
  }
  graph.mark_backward(options.micro_batches == 1 ? added : 0);
  verify_if_asserting(graph);
}

}  // namespace tessera::model
