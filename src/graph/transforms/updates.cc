#include "graph/transforms/updates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "base/random.h"
#include "graph/operation.h"
#include "graph/shards.h"

namespace tessera::graph {
namespace {

void check_decay(double decay) { require_setting(kFromZero, "the weight decay", decay); }

void check_momentum(double momentum) {
  require_setting(momentum >= 0 && momentum < 1, "the momentum", momentum, "in [0, 1)");
}

template <class Moments>
void check_moments(const Moments& of) {
  for (double beta : {of.beta1, of.beta2})
    require_setting(beta >= 0 && beta < 1, "a beta", beta, "in [0, 1)");
  require_setting(kPositive, "epsilon", of.epsilon);
  check_decay(of.weight_decay);
}

void check_one(const Sgd& sgd) {
  check_momentum(sgd.momentum);
  check_decay(sgd.weight_decay);
  if (sgd.nesterov && sgd.momentum == 0) throw UsageError("Nesterov's method needs momentum");
}
void check_one(const Adam& adam) { check_moments(adam); }
void check_one(const Lamb& lamb) { check_moments(lamb); }
void check_one(const Lars& lars) {
  check_momentum(lars.momentum);
  check_decay(lars.weight_decay);
  require_setting(kPositive, "the trust coefficient", lars.trust_coefficient);
}

/// Whether a name matches a pattern, in which `*` stands for any characters.
bool matches(std::string_view name, std::string_view pattern) {
  constexpr size_t kNone = std::string_view::npos;
  size_t n = 0, p = 0;
  size_t star = kNone, rest = 0;  // the last `*` so far, and what follows the characters that it stands for
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      rest = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++n;
      ++p;
    } else if (star != kNone) {
      // Earlier stars stand for as little as they can, which leaves most to the last.
      p = star + 1;
      n = ++rest;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

std::vector<ValueId> members_of(const ParameterGroup& group, const Graph& graph,
                                std::span<const ValueId> parameters) {
  std::vector<ValueId> members;
  for (const Value& value : group.parameters) {
    if (graph.info(value.id).kind != Kind::parameter)
      throw UsageError(
          fmt::format("'{}' is in a group of parameters, but is not a parameter", graph.info(value.id).name));
    members.push_back(value.id);
  }
  for (const std::string& pattern : group.names) {
    const size_t before = members.size();
    for (ValueId id : parameters)
      if (matches(graph.info(id).name, pattern)) members.push_back(id);
    if (members.size() != before) continue;
    constexpr size_t kMost = 12;
    std::vector<std::string_view> names;
    for (ValueId id : parameters.first(std::min(parameters.size(), kMost)))
      names.push_back(graph.info(id).name);
    throw UsageError(fmt::format("no parameter has the name '{}' of a group; there are {}{}", pattern,
                                 fmt::join(names, ", "), parameters.size() > kMost ? ", …" : ""));
  }
  return members;
}

ParameterSettings settings_of_size(uint64_t elements, const TrainingOptions& options) {
  const auto is_large = [&](const std::optional<uint64_t>& least) { return least && elements >= *least; };
  return {.shard = is_large(options.shard_from),
          .offload = is_large(options.offload_from),
          .shard_weights = is_large(options.shard_weights_from),
          .offload_weights = is_large(options.offload_weights_from),
          .shard_gradients = is_large(options.shard_gradients_from),
          .offload_gradients = is_large(options.offload_gradients_from)};
}

Value scalar(Graph& graph, float number) { return graph.constant("", {}, {number}); }

/// The ratio, or 1 if one of two sums of squares is 0.
Value unless_zero(Value squares, Value others, Value ratio) {
  return where(minimum(squares, others), ratio, scalar(*ratio.graph, 1));
}

/// The sums of the squares of two values, of all replicas' elements.
std::pair<Value, Value> squares_of(Value a, Value b) {
  const Value of_a = sum_of_squares(a), of_b = sum_of_squares(b);
  return {of_all_replicas(of_a, a), of_all_replicas(of_b, b)};
}

Attributes attributes_of(const Adam& adam) {
  return {{"beta1", adam.beta1},
          {"beta2", adam.beta2},
          {"epsilon", adam.epsilon},
          {"decay", adam.weight_decay},
          {"bias_correction", int64_t{adam.bias_correction}}};
}

}  // namespace

Value sum_of_squares(Value x) { return x.owner().apply("sum_of_squares", {x}, {{"over", "all"}})[0]; }

Value of_all_replicas(Value sum, Value of) { return of.type().sharded ? sum_over_replicas(sum) : sum; }

void require_setting(bool holds, std::string_view what, double value, std::string_view range) {
  if (!holds) throw UsageError(fmt::format("{} is {}; it must be {}", what, value, range));
}

void require_setting(const SettingRange& range, std::string_view what, double value) {
  require_setting(range.has(value), what, value, range.text);
}

void check(const Optimizer& optimizer) {
  std::visit([](const auto& one) { check_one(one); }, optimizer);
}

void check_sharding(Sharding sharding, const std::vector<ParameterGroup>& groups, uint32_t replicas) {
  for (const ParameterGroup& group : groups) {
    sharding.state |= group.shard.value_or(false);
    sharding.weights |= group.shard_weights.value_or(false);
    sharding.gradients |= group.shard_gradients.value_or(false);
  }
  if (replicas > 1) return;
  const auto refuse = [](const char* what) {
    throw UsageError(fmt::format("{} divided among replicas, but there is only one: ask for several", what));
  };
  if (sharding.state) refuse("the optimizer's state is");
  if (sharding.weights) refuse("parameters are");
  if (sharding.gradients) refuse("sums of gradients are");
}

std::map<ValueId, ParameterSettings> settings_of_parameters(const Graph& graph,
                                                            const TrainingOptions& options) {
  const double decay =
      std::visit([](const auto& optimizer) { return optimizer.weight_decay; }, options.optimizer);
  std::map<ValueId, ParameterSettings> settings;
  std::vector<ValueId> parameters;
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (graph.info(id).kind == Kind::parameter) {
      settings[id] = settings_of_size(graph.type(id).elements(), options);
      settings[id].weight_decay = decay;
      parameters.push_back(id);
    }
  for (const ParameterGroup& group : options.groups)
    for (ValueId id : members_of(group, graph, parameters)) {
      ParameterSettings& own = settings.at(id);
      own.lr_scale = group.lr_scale.value_or(own.lr_scale);
      own.weight_decay = group.weight_decay.value_or(own.weight_decay);
      own.trust_ratio = group.trust_ratio.value_or(own.trust_ratio);
      own.shard = group.shard.value_or(own.shard);
      own.offload = group.offload.value_or(own.offload);
      own.shard_weights = group.shard_weights.value_or(own.shard_weights);
      own.offload_weights = group.offload_weights.value_or(own.offload_weights);
      // Whole state needs whole gradients.
      own.shard_gradients = group.shard_gradients.value_or(own.shard_gradients && group.shard.value_or(true));
      own.offload_gradients = group.offload_gradients.value_or(own.offload_gradients);
    }
  for (auto& [id, own] : settings) own.shard = own.shard || own.shard_gradients;
  return settings;
}

void place_weights(Graph& graph, const std::map<ValueId, ParameterSettings>& settings, bool has_replicas) {
  for (const auto& [id, own] : settings) {
    const Value parameter = graph.value(id);
    if (own.offload_weights) graph.offload(parameter);
    if (own.shard_weights && has_replicas && may_be_divided(parameter.type())) graph.shard(parameter);
  }
}

void Updates::add(const ParameterSettings& settings, const Updated& updated) {
  std::visit([&](const auto& one) { add(one, settings, updated); }, options_.optimizer);
}

void Updates::add(const Sgd& sgd, const ParameterSettings& own, const Updated& of) {
  descend(own, of, {sgd.momentum, own.weight_decay, sgd.nesterov});
}

void Updates::add(Adam adam, const ParameterSettings& own, const Updated& of) {
  adam.weight_decay = own.weight_decay;
  const Moments moments = moments_of(own, of, adam.bias_correction);
  Attributes attributes = attributes_of(adam);
  attributes["decoupled"] = int64_t{adam.decoupled};
  const std::vector<Value> updated = graph_.apply(
      "adam", {of.gradient, of.lr, wide(of), moments.step, wide(moments.first), wide(moments.second)},
      attributes);
  assign_parameter(of, updated[0]);
  assign(moments.first, updated[1]);
  assign(moments.second, updated[2]);
}

void Updates::add(const Lamb& lamb, const ParameterSettings& own, const Updated& of) {
  const Adam adam{lamb.beta1, lamb.beta2, lamb.epsilon, own.weight_decay, true, lamb.bias_correction};
  if (!own.trust_ratio) return add(adam, own, of);
  const Moments moments = moments_of(own, of, adam.bias_correction);
  const std::vector<Value> results =
      graph_.apply("adam_direction",
                   {of.gradient, of.lr, wide(of), moments.step, wide(moments.first), wide(moments.second)},
                   attributes_of(adam));
  assign(moments.first, results[0]);
  assign(moments.second, results[1]);
  const Value direction = results[2];
  const auto [weight, step] = squares_of(of.current, direction);
  const Value ratio = unless_zero(weight, step, sqrt(weight) * rsqrt(step));
  descend(own, {of.parameter, of.current, direction, of.lr * ratio}, {});
}

void Updates::add(const Lars& lars, const ParameterSettings& own, const Updated& of) {
  Value lr = of.lr;
  if (own.trust_ratio) {
    const auto [weight, gradient] = squares_of(of.current, of.gradient);
    const Value norm = sqrt(weight);
    Value whole = sqrt(gradient);
    if (own.weight_decay != 0) whole = whole + norm * own.weight_decay;
    lr = lr * unless_zero(weight, gradient, norm * lars.trust_coefficient / whole);
  }
  descend(own, {of.parameter, of.current, of.gradient, lr}, {lars.momentum, own.weight_decay, false}, true);
}

/// weight −= lr · gradient, with decay and momentum.
void Updates::descend(const ParameterSettings& own, const Updated& of, const Sgd& sgd, bool lr_in_velocity) {
  std::vector<Value> inputs = {of.gradient, of.lr, wide(of)};
  std::optional<Value> velocity;
  if (sgd.momentum != 0) {
    velocity = state_of(own, of, "velocity");
    inputs.push_back(wide(*velocity));
  }
  const std::vector<Value> updated = graph_.apply("sgd", inputs,
                                                  {{"momentum", sgd.momentum},
                                                   {"decay", sgd.weight_decay},
                                                   {"nesterov", int64_t{sgd.nesterov}},
                                                   {"lr_in_velocity", int64_t{lr_in_velocity}}});
  assign_parameter(of, updated[0]);
  if (velocity) assign(*velocity, updated[1]);
}

/// State of an optimizer for each element of a parameter.
Value Updates::state_of(const ParameterSettings& own, const Updated& of, const char* what) {
  TensorType type = of.current.type();
  type.type = options_.state;
  const Value state = graph_.state(graph_.info(of.parameter.id).name + "." + what, type, {}, of.parameter);
  if (own.offload) graph_.offload(state);
  return state;
}

/// The moments, and the number of the step, which only bias corrections need.
Updates::Moments Updates::moments_of(const ParameterSettings& own, const Updated& of, bool bias_correction) {
  return {state_of(own, of, "first_moment"), state_of(own, of, "second_moment"),
          bias_correction ? good_step() : graph_.constant("", {}, {1}, Type::u32)};
}

/// The number of the step. Where micro-batches take it too, each has a number, and the first one's counts.
Value Updates::step() {
  if (step_) return *step_;
  constexpr const char* kName = "step";
  if (options_.micro_batches > 1 && graph_.contains(kName)) {
    const Value given = graph_.find(kName);
    const TensorType of_micro_batches{Type::u32, {options_.micro_batches}, {}, {}};
    if (graph_.info(given.id).kind == Kind::input && given.type() == of_micro_batches)
      step_ = slice(given, 0, 0, 1);
  }
  if (!step_) step_ = input_named(graph_, kName, Type::u32);
  return *step_;
}

/// The number of the step among those that were not left out.
Value Updates::good_step() {
  if (!skipped_) return step();
  if (!good_step_) good_step_ = step() - cast(*skipped_, Type::u32);
  return *good_step_;
}

/// What updates take in FP32: optimizers' state, and parameters that are rounded by themselves afterwards.
Value Updates::wide(Value value) const { return cast(value, Type::f32); }
Value Updates::wide(const Updated& of) const {
  return of_parameters() != Rounding::nearest ? wide(of.current) : of.current;
}

Value Updates::narrow(Value value, Type type, Rounding rounding) {
  if (rounding == Rounding::nearest || value.type().type == type) return cast(value, type);
  // Other random numbers than the graph draws with the same seed.
  const uint64_t seed = base::seed_of_substream(options_.seed, UINT32_MAX, 1);
  return graph_.apply("cast", {value, step()},
                      {{"type", std::string(name_of(type))},
                       {"rounding", "stochastic"},
                       {"seed", static_cast<int64_t>(seed)},
                       {"stream", int64_t{rounded_++}},
                       {"shared", int64_t{value.type().sharded ? 0 : 1}}})[0];
}

/// Sets state to what an update gives, rounded.
void Updates::assign(Value changed, Value updated) {
  graph_.assign(changed, narrow(updated, changed.type().type, of_state()));
}

void Updates::assign_parameter(const Updated& of, Value updated) {
  const Value rounded = narrow(updated, of.parameter.type().type, of_parameters());
  if (!rounded.type().sharded) return set_parameter(of.parameter, rounded);
  parts_.emplace_back(of.parameter, rounded);
}

void Updates::set_parameter(Value parameter, Value updated) {
  graph_.rename(updated, graph_.info(parameter.id).name + ".updated");
  graph_.assign(parameter, updated);
}

void Updates::gather() {
  for (const auto& [parameter, part] : parts_)
    set_parameter(parameter, graph_.apply("gather_shards", {part, parameter})[0]);
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

}  // namespace tessera::graph
