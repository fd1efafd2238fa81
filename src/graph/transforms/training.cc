// Gradients and updates of all parameters.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/operation.h"
#include "graph/transforms/transforms.h"

namespace tessera::model {
namespace {

/// PyTorch's, against a division by zero.
constexpr double kNormEpsilon = 1e-6;

void check_training(const TrainingOptions& options) {
  const auto require = [](bool holds, std::string_view what, double value, std::string_view range) {
    if (!holds) throw UsageError(fmt::format("{} is {}; it must be {}", what, value, range));
  };
  if (const auto* sgd = std::get_if<Sgd>(&options.optimizer)) {
    require(sgd->momentum >= 0 && sgd->momentum < 1, "the momentum", sgd->momentum, "in [0, 1)");
    require(sgd->decay >= 0, "the weight decay", sgd->decay, "at least 0");
    if (sgd->nesterov && sgd->momentum == 0) throw UsageError("Nesterov's method needs momentum");
  } else {
    const auto& adam = std::get<Adam>(options.optimizer);
    for (double beta : {adam.beta1, adam.beta2}) require(beta >= 0 && beta < 1, "a beta", beta, "in [0, 1)");
    require(adam.epsilon > 0, "epsilon", adam.epsilon, "positive");
    require(adam.decay >= 0, "the weight decay", adam.decay, "at least 0");
  }
  for (const auto& [value, factor] : options.lr_scales)
    require(std::isfinite(factor) && factor >= 0, "a factor of the learning rate", factor, "at least 0");
  require(options.replicas > 0, "the number of replicas", options.replicas, "at least 1");
  if (options.clip_norm) require(*options.clip_norm > 0, "the clipping norm", *options.clip_norm, "positive");
  require(options.micro_batches > 0, "the number of micro-batches", options.micro_batches, "at least 1");
}

/// Throws UsageError for options that name values of another graph.
void check_training(const TrainingOptions& options, const Graph& graph) {
  std::vector<Value> named = options.frozen;
  for (const auto& [value, factor] : options.lr_scales) named.push_back(value);
  for (const Value& value : named)
    if (&value.owner() != &graph)
      throw UsageError(
          "a value that is frozen, or has a learning rate of its own, is of another graph than the loss");
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

Value input_named(Graph& graph, const std::string& name, Type type) {
  for (ValueId id = 0; id < graph.values().size(); ++id) {
    const ValueInfo& info = graph.info(id);
    if (info.name != name) continue;
    if (info.kind == Kind::input && info.type.type == type && info.type.elements() == 1)
      return graph.value(id);
    throw UsageError(fmt::format("the value '{}' must be an input, {}[]", name, name_of(type)));
  }
  return graph.input(name, {}, type);
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

/// State of an optimizer for each element of a parameter.
Value state_of(Graph& graph, Value parameter, const char* what) {
  TensorType type = parameter.type();
  type.type = Type::f32;
  return graph.state(graph.info(parameter.id).name + "." + what, type, {}, parameter);
}

void update(Graph& graph, const Sgd& sgd, Value parameter, Value gradient, Value lr) {
  std::vector<Value> inputs = {gradient, lr, parameter};
  if (sgd.momentum != 0) inputs.push_back(state_of(graph, parameter, "velocity"));
  const std::vector<Value> updated = graph.apply(
      "sgd", inputs, {{"momentum", sgd.momentum}, {"decay", sgd.decay}, {"nesterov", int64_t{sgd.nesterov}}});
  graph.rename(updated[0], graph.info(parameter.id).name + ".updated");
  graph.assign(parameter, updated[0]);
  if (sgd.momentum != 0) graph.assign(inputs.back(), updated[1]);
}

void update(Graph& graph, const Adam& adam, Value parameter, Value gradient, Value lr) {
  const Value first = state_of(graph, parameter, "first_moment");
  const Value second = state_of(graph, parameter, "second_moment");
  const std::vector<Value> updated =
      graph.apply("adam", {gradient, lr, parameter, input_named(graph, "step", Type::u32), first, second},
                  {{"beta1", adam.beta1},
                   {"beta2", adam.beta2},
                   {"epsilon", adam.epsilon},
                   {"decay", adam.decay},
                   {"decoupled", int64_t{adam.decoupled}}});
  graph.rename(updated[0], graph.info(parameter.id).name + ".updated");
  graph.assign(parameter, updated[0]);
  graph.assign(first, updated[1]);
  graph.assign(second, updated[2]);
}

/// Learning rates of parameters: the input, times their factors.
class LearningRates {
 public:
  LearningRates(Graph& graph, const TrainingOptions& options)
      : options_(options), by_factor_{{1, input_named(graph, "lr", Type::f32)}} {
    for (const auto& [parameter, factor] : options.lr_scales)
      if (!by_factor_.contains(factor)) by_factor_.emplace(factor, by_factor_.at(1) * factor);
  }

  Value of(Value parameter) const {
    for (const auto& [value, factor] : options_.lr_scales)
      if (value.id == parameter.id) return by_factor_.at(factor);
    return by_factor_.at(1);
  }

 private:
  const TrainingOptions& options_;
  std::map<double, Value> by_factor_;
};

}  // namespace

void add_training(Value loss, const TrainingOptions& options) {
  check_training(options);
  Graph& graph = loss.owner();
  check_training(options, graph);
  std::vector<Value> all;
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (graph.info(id).kind == Kind::parameter &&
        std::ranges::find(options.frozen, id, &Value::id) == options.frozen.end())
      all.push_back(graph.value(id));
  // Before the gradients, as an update may run together with its gradient.
  std::optional<LearningRates> lrs;
  if (options.micro_batches == 1 && options.replicas == 1) lrs.emplace(graph, options);
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
  if (!lrs) lrs.emplace(graph, options);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Value lr = lrs->of(parameters[i]);
    std::visit([&](const auto& optimizer) { update(graph, optimizer, parameters[i], its_gradients[i], lr); },
               options.optimizer);
  }
  graph.mark_backward(options.micro_batches == 1 ? added : 0);
  verify_if_asserting(graph);
}

}  // namespace tessera::model
