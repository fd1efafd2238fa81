#include "ops/spiking/stack.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "ops/map/elementwise.h"
#include "ops/map/fill.h"

namespace tessera::ops {
namespace {

using program::StepId;

void check_layers(const std::vector<SpikingLayer>& layers, const SpikingNetworkOptions& options) {
  if (layers.empty()) throw UsageError("a spiking network has no layers");
  if (!options.capacities.empty() && options.capacities.size() != layers.size())
    throw UsageError(fmt::format("a spiking network of {} layers has {} capacities; give one each, or none",
                                 layers.size(), options.capacities.size()));
  for (size_t i = 1; i < layers.size(); ++i) {
    if (!layers[i - 1].neuron.spikes)
      throw UsageError(fmt::format("layer {} has no spikes, so it must be the last", i - 1));
    if (layers[i].inputs != layers[i - 1].neurons)
      throw UsageError(fmt::format("layer {} has {} inputs, and the layer before {} neurons", i,
                                   layers[i].inputs, layers[i - 1].neurons));
  }
}

/// The operands of each layer, linked to those of the one before.
std::vector<SpikingOperands> operands_of(const std::vector<SpikingProblem>& problems,
                                         const SpikingStackOperands& o) {
  std::vector<SpikingOperands> all;
  auto parameter = o.parameters.begin();
  for (size_t i = 0; i < problems.size(); ++i) {
    const auto end = parameter + static_cast<std::ptrdiff_t>(parameters_of(problems[i].layer).size());
    SpikingOperands layer{o.layers[i]};
    layer.in_ids = i == 0 ? o.in_ids : *all[i - 1].ids;
    layer.in_num = i == 0 ? o.in_num : *all[i - 1].num;
    layer.parameters.assign(parameter, end);
    layer.control = o.control;
    layer.gradient_threshold = o.gradient_threshold;
    all.push_back(std::move(layer));
    parameter = end;
  }
  return all;
}

/// Gradients of a stack, from the last layer that anything depends on.
class StackGradients {
 public:
  StackGradients(const Builder& builder, const std::vector<SpikingProblem>& problems,
                 const SpikingStackOperands& operands)
      : builder_(builder),
        problems_(problems),
        o_(operands),
        layers_(operands_of(problems, operands)),
        first_gradient_{0} {
    for (const SpikingProblem& problem : problems)
      first_gradient_.push_back(first_gradient_.back() + learned_parameters(problem).size());
  }

  BuiltSpikingStack build() {
    std::optional<Operand> upstream;
    for (size_t i = problems_.size(); i-- > 0;) {
      upstream = sum_of(upstream, o_.layers[i].upstream);
      if (!upstream) {
        clear(i);
        continue;
      }
      const auto din = add_layer(i, *upstream);
      upstream = din;
    }
    return {builder_.sequence(std::move(steps_)), std::move(plans_)};
  }

 private:
  /// Gradients on which no result depends are 0.
  void clear(size_t i) {
    for (size_t g = first_gradient_[i]; g < first_gradient_[i + 1]; ++g) fill(o_.parameter_gradients[g]);
    if (i == 0 && o_.din) fill(*o_.din);
  }
  void fill(const Operand& to) {
    steps_.push_back(add(builder_, FillProblem{.rows = to.rows(), .cols = to.cols()}, {to}));
  }

  std::optional<Operand> sum_of(const std::optional<Operand>& a, const std::optional<Operand>& b) {
    if (!a || !b) return a ? a : b;
    steps_.push_back(add(builder_,
                         BinaryProblem{.op = kernels::Binary::add, .rows = a->rows(), .cols = a->cols()},
                         {*a, *b, *a}));
    return a;
  }

  std::optional<Operand> add_layer(size_t i, const Operand& upstream) {
    SpikingProblem problem = problems_[i];
    problem.gradients = true;
    problem.input_gradient = i > 0 || o_.din;
    SpikingOperands& o = layers_[i];
    if (!problem.learns_dynamics && !problem.layer.neuron.spikes) o.potentials.reset();
    o.control.reset();
    o.gradient_threshold.reset();
    o.dropped.reset();
    o.upstream = upstream;
    const auto gradients = o_.parameter_gradients.begin();
    o.parameter_gradients.assign(gradients + static_cast<std::ptrdiff_t>(first_gradient_[i]),
                                 gradients + static_cast<std::ptrdiff_t>(first_gradient_[i + 1]));
    if (i > 0)
      o.din = builder_.temporary(fmt::format("din{}", i), Type::f32, problem.steps,
                                 problem.batch * problem.in_capacity);
    else
      o.din = o_.din;
    plans_.push_back(plan_spiking(problem, builder_.machine()));
    steps_.push_back(build_spiking(builder_, problem, plans_.back(), o));
    return o.din;
  }

  const Builder& builder_;
  const std::vector<SpikingProblem>& problems_;
  const SpikingStackOperands& o_;
  std::vector<SpikingOperands> layers_;
  std::vector<size_t> first_gradient_;
  std::vector<StepId> steps_;
  std::vector<SpikingPlan> plans_;
};

}  // namespace

std::vector<SpikingProblem> spiking_problems(const std::vector<SpikingLayer>& layers, uint32_t steps,
                                             uint32_t batch, const SpikingNetworkOptions& options) {
  check_layers(layers, options);
  std::vector<SpikingProblem> problems;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto activity = [&](size_t layer) { return options.expected_activity * layers[layer].neurons; };
    SpikingProblem problem;
    problem.layer = layers[i];
    problem.steps = steps;
    problem.batch = batch;
    problem.in_capacity = i > 0                        ? problems[i - 1].room()
                          : options.input_capacity > 0 ? options.input_capacity
                                                       : layers[0].inputs;
    problem.capacity = options.capacities.empty() ? 0 : options.capacities[i];
    problem.trains = options.trains;
    problem.learns_dynamics = options.learns_dynamics;
    problem.input_gradient = i > 0 || options.input_gradient;
    problem.operation = static_cast<uint32_t>(i);
    problem.expected_inputs =
        i > 0 ? activity(i - 1) / 2 : options.expected_input_activity * layers[0].inputs;
    problem.expected_listed = activity(i);
    parameters_of(problem.layer);
    if (problem.capacity > layers[i].neurons)
      throw UsageError(
          fmt::format("layer {} of {} neurons has lists of {}; they need no more room than for all", i,
                      layers[i].neurons, problem.capacity));
    problems.push_back(problem);
  }
  return problems;
}

std::vector<SpikingParameter> learned_parameters(const SpikingProblem& problem) {
  std::vector<SpikingParameter> all = parameters_of(problem.layer);
  if (!problem.learns_dynamics) all.resize(problem.layer.recurrent ? 2 : 1);
  return all;
}

BuiltSpikingStack build_spiking_stack(const Builder& builder, const std::vector<SpikingProblem>& problems,
                                      const SpikingStackOperands& operands) {
  const std::vector<SpikingOperands> layers = operands_of(problems, operands);
  BuiltSpikingStack built;
  std::vector<StepId> steps;
  for (size_t i = 0; i < problems.size(); ++i) {
    built.plans.push_back(plan_spiking(problems[i], builder.machine()));
    steps.push_back(build_spiking(builder, problems[i], built.plans.back(), layers[i]));
  }
  built.step = builder.sequence(std::move(steps));
  return built;
}

BuiltSpikingStack build_spiking_stack_gradients(const Builder& builder,
                                                const std::vector<SpikingProblem>& problems,
                                                const SpikingStackOperands& operands) {
  return StackGradients(builder, problems, operands).build();
}

}  // namespace tessera::ops
