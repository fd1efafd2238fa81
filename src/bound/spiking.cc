#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/spiking.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/on_demand.h"
#include "bound/bound_program.h"
#include "bound/views.h"
#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/spiking/stack.h"

namespace tessera {
namespace {

using ops::kSpikingResults;
using ops::Operand;
using ops::SpikingLayerOperands;
using ops::SpikingMatrix;
using ops::SpikingResult;
using ops::SpikingResults;
using program::Role;

constexpr uint64_t kLine = 64;

bool gradients_read(const SpikingResult& result, const ops::SpikingProblem& problem) {
  if (result.matrix == &SpikingResults::potentials)
    return problem.layer.neuron.spikes || problem.learns_dynamics;
  return result.matrix != &SpikingResults::dropped;
}

/// The results of a layer, and their places in the state of a network.
struct LayerResults : SpikingResults {
  LayerResults(const ops::SpikingProblem& problem, uint64_t& end) : SpikingResults(ops::results_of(problem)) {
    for (size_t i = 0; i < kSpikingResults.size(); ++i) {
      offsets[i] = end;
      end += ((this->*kSpikingResults[i].matrix).bytes() + kLine - 1) / kLine * kLine;
    }
  }

  template <class T>
  const T* in(const std::byte* state, SpikingMatrix SpikingResults::*matrix) const {
    const auto result = std::ranges::find(kSpikingResults, matrix, &SpikingResult::matrix);
    return reinterpret_cast<const T*>(state + offsets[static_cast<size_t>(result - kSpikingResults.begin())]);
  }

  std::array<uint64_t, kSpikingResults.size()> offsets;
};

/// A pass over all layers. It takes the caller's arrays, and after them the arrays that lie in a state.
struct NetworkPass {
  bound::BoundProgram program;
  std::vector<uint64_t> offsets;  ///< of the arrays in the state
  std::vector<ops::SpikingPlan> plans;

  void run(bound::Arrays& arrays, const std::byte* state) const {
    for (const uint64_t offset : offsets) arrays.add(state + offset);
    program.run(arrays);
  }
};

Operand external(const ops::Builder& builder, std::string name, Role role, const SpikingMatrix& matrix) {
  return builder.external(std::move(name), role, matrix.type, matrix.rows, matrix.cols);
}

}  // namespace

struct SpikingNetwork::Compiled {
  Compiled(std::vector<SpikingLayer> of, uint32_t steps, uint32_t batch, const SpikingNetworkOptions& given)
      : layers(std::move(of)), options(given), machine(machine::host(given.threads)) {
    problems = ops::spiking_problems(layers, steps, batch, options);
    for (const ops::SpikingProblem& problem : problems) {
      for (const SpikingParameter& parameter : parameters_of(problem.layer)) parameters.push_back(parameter);
      learned += ops::learned_parameters(problem).size();
      results.emplace_back(problem, state_end);
    }
    (void)pass(false);
  }

  const NetworkPass& pass(bool gradients) const {
    return passes.at(gradients ? 1 : 0, [&] { return compile(gradients); });
  }

  NetworkPass compile(bool gradients) const {
    program::Program program;
    const ops::Builder builder(program, machine);
    ops::SpikingStackOperands operands = given_operands(builder);
    gradients ? add_gradients(builder, operands) : add_control(builder, operands);
    std::vector<uint64_t> offsets;
    for (size_t i = 0; i < layers.size(); ++i)
      add_results(builder, i, gradients, operands.layers[i], offsets);
    const auto build = gradients ? ops::build_spiking_stack_gradients : ops::build_spiking_stack;
    ops::BuiltSpikingStack built = build(builder, problems, operands);
    program.set_main(built.step);
    return {{std::move(program), machine}, std::move(offsets), std::move(built.plans)};
  }

  /// The caller's operands that both passes take: lists of inputs, and parameters.
  ops::SpikingStackOperands given_operands(const ops::Builder& builder) const {
    const ops::SpikingProblem& first = problems[0];
    ops::SpikingStackOperands o;
    o.in_ids =
        external(builder, "ids", Role::input, {Type::u16, first.steps, first.batch * first.in_capacity});
    o.in_num = external(builder, "num", Role::input, {Type::u32, first.steps, first.batch * 2});
    for (size_t i = 0; i < parameters.size(); ++i)
      o.parameters.push_back(external(builder, fmt::format("{}{}", parameters[i].name, i), Role::input,
                                      {Type::f32, parameters[i].rows, parameters[i].cols}));
    o.layers.resize(layers.size());
    return o;
  }

  void add_control(const ops::Builder& builder, ops::SpikingStackOperands& o) const {
    o.control = external(builder, "control", Role::input, ops::control_of(problems.front()));
    o.gradient_threshold = external(builder, "gradient_threshold", Role::input, {Type::f32, 1, 1});
  }

  void add_gradients(const ops::Builder& builder, ops::SpikingStackOperands& o) const {
    const ops::SpikingProblem& first = problems.front();
    for (size_t i = options.hidden_upstream ? 0 : layers.size() - 1; i < layers.size(); ++i)
      o.layers[i].upstream =
          external(builder, fmt::format("upstream{}", i), Role::input, ops::upstream_of(problems[i]));
    for (const ops::SpikingProblem& problem : problems)
      for (const SpikingParameter& parameter : ops::learned_parameters(problem))
        o.parameter_gradients.push_back(external(builder,
                                                 fmt::format("gradient{}", o.parameter_gradients.size()),
                                                 Role::output, {Type::f32, parameter.rows, parameter.cols}));
    if (options.input_gradient)
      o.din =
          external(builder, "din", Role::output, {Type::f32, first.steps, first.batch * first.in_capacity});
  }

  /// The results of layer i, which lie in the state: a forward pass writes them, gradients read some.
  void add_results(const ops::Builder& builder, size_t i, bool gradients, SpikingLayerOperands& operands,
                   std::vector<uint64_t>& offsets) const {
    for (size_t r = 0; r < kSpikingResults.size(); ++r) {
      const SpikingMatrix& matrix = results[i].*kSpikingResults[r].matrix;
      if (matrix.empty() || (gradients && !gradients_read(kSpikingResults[r], problems[i]))) continue;
      offsets.push_back(results[i].offsets[r]);
      operands.*kSpikingResults[r].operand =
          external(builder, fmt::format("{}{}", kSpikingResults[r].name, i),
                   gradients ? Role::input : Role::output, matrix);
    }
  }

  /// The plans of the passes that were compiled.
  std::vector<ops::SpikingPlan> plans() const {
    std::vector<ops::SpikingPlan> all;
    for (const uint64_t gradients : {0U, 1U})
      if (const NetworkPass* compiled = passes.find(gradients))
        all.insert(all.end(), compiled->plans.begin(), compiled->plans.end());
    return all;
  }

  void require_inputs(const SpikeLists& in, std::span<const float* const> values) const {
    const ops::SpikingProblem& first = problems[0];
    require_array(in.ids, "the lists' ids");
    require_array(in.num, "the lists' num");
    if (in.capacity != first.in_capacity)
      throw UsageError(fmt::format("lists of inputs have room for {}; this network was made for {}",
                                   in.capacity, first.in_capacity));
    if (values.size() != parameters.size())
      throw UsageError(
          fmt::format("this network has {} parameters; given are {}", parameters.size(), values.size()));
    for (size_t i = 0; i < values.size(); ++i) require_array(values[i], parameters[i].name);
  }

  void require_lists(const SpikeLists& in) const {
    const ops::SpikingProblem& first = problems[0];
    ops::check_lists(in.ids, in.num, first.steps, {first.batch, in.capacity, first.layer.inputs});
  }

  /// The caller's state, or the network's own for callers without one; aligned to a cache line.
  const std::byte* state_or_own(const std::byte* state) {
    if (state != nullptr) return state;
    if (own_state == nullptr) own_state.reset(new std::byte[state_end + kLine]);
    const auto address = reinterpret_cast<uintptr_t>(own_state.get());
    return own_state.get() + (kLine - address % kLine) % kLine;
  }

  std::vector<SpikingLayer> layers;
  SpikingNetworkOptions options;
  machine::Machine machine;
  std::vector<ops::SpikingProblem> problems;
  std::vector<SpikingParameter> parameters;
  size_t learned = 0;  ///< parameters with gradients
  uint64_t state_end = 0;
  std::vector<LayerResults> results;
  std::unique_ptr<std::byte[]> own_state;
  base::OnDemand<NetworkPass> passes;
  bool ran = false;
};

SpikingNetwork::SpikingNetwork(std::vector<SpikingLayer> layers, uint32_t steps, uint32_t batch,
                               const SpikingNetworkOptions& options)
    : compiled_(std::make_unique<Compiled>(std::move(layers), steps, batch, options)) {}
SpikingNetwork::~SpikingNetwork() = default;
SpikingNetwork::SpikingNetwork(SpikingNetwork&&) noexcept = default;
SpikingNetwork& SpikingNetwork::operator=(SpikingNetwork&&) noexcept = default;

void SpikingNetwork::forward(const SpikeLists& in, std::span<const float* const> parameters,
                             const SpikingControl& control, std::byte* state) {
  Compiled& c = *compiled_;
  c.require_inputs(in, parameters);
  c.require_lists(in);
  const uint32_t words[] = {control.most_listed, static_cast<uint32_t>(control.seed),
                            static_cast<uint32_t>(control.seed >> 32), control.step};
  const NetworkPass& pass = c.pass(false);
  bound::Arrays arrays(pass.program);
  arrays.add(in.ids).add(in.num);
  for (const float* parameter : parameters) arrays.add(parameter);
  arrays.add(words).add(&control.gradient_threshold);
  pass.run(arrays, c.state_or_own(state));
  if (state == nullptr) c.ran = true;
}

void SpikingNetwork::gradients(const SpikeLists& in, std::span<const float* const> parameters,
                               const float* upstream, std::span<float* const> parameter_gradients,
                               float* input_gradient, const std::byte* state,
                               std::span<const float* const> hidden_upstream) {
  Compiled& c = *compiled_;
  if (!c.options.trains) throw UsageError("this network was made without training, so it has no gradients");
  if (state == nullptr && !c.ran) throw UsageError("gradients follow a forward pass; there was none");
  c.require_inputs(in, parameters);
  require_array(upstream, "upstream");
  if (c.options.input_gradient != (input_gradient != nullptr))
    throw UsageError(c.options.input_gradient ? "this network has gradients of inputs; pass an array for them"
                                              : "this network was made without gradients of inputs");
  const size_t hidden = c.options.hidden_upstream ? c.layers.size() - 1 : 0;
  if (hidden_upstream.size() != hidden)
    throw UsageError(
        fmt::format("this network takes gradients of the spikes of {} hidden layers; given are {}", hidden,
                    hidden_upstream.size()));
  for (const float* of_hidden : hidden_upstream) require_array(of_hidden, "hidden_upstream");
  if (parameter_gradients.size() != c.learned)
    throw UsageError(fmt::format("this network has gradients of {} parameters; given are arrays for {}",
                                 c.learned, parameter_gradients.size()));
  for (float* gradient : parameter_gradients) require_array(gradient, "a gradient");
  const NetworkPass& pass = c.pass(true);
  bound::Arrays arrays(pass.program);
  arrays.add(in.ids).add(in.num);
  for (const float* parameter : parameters) arrays.add(parameter);
  for (const float* of_hidden : hidden_upstream) arrays.add(of_hidden);
  arrays.add(upstream);
  for (const float* gradient : parameter_gradients) arrays.add(gradient);
  if (input_gradient != nullptr) arrays.add(input_gradient);
  pass.run(arrays, c.state_or_own(state));
}

size_t SpikingNetwork::layers() const { return compiled_->layers.size(); }
const SpikingLayer& SpikingNetwork::layer(size_t index) const { return compiled_->layers.at(index); }
uint32_t SpikingNetwork::steps() const { return compiled_->problems[0].steps; }
uint32_t SpikingNetwork::batch() const { return compiled_->problems[0].batch; }

SpikeLists SpikingNetwork::spikes(size_t layer, const std::byte* state) const {
  const LayerResults& r = compiled_->results.at(layer);
  if (r.ids.empty()) throw UsageError(fmt::format("layer {} has no spikes", layer));
  const std::byte* from = compiled_->state_or_own(state);
  return {r.in<uint16_t>(from, &SpikingResults::ids), r.in<uint32_t>(from, &SpikingResults::num),
          compiled_->problems[layer].room()};
}

SpikingCounts SpikingNetwork::counts(size_t layer, const std::byte* state) const {
  const SpikeLists lists = spikes(layer, state);
  const auto* dropped =
      compiled_->results[layer].in<uint32_t>(compiled_->state_or_own(state), &SpikingResults::dropped);
  SpikingCounts counts;
  for (uint64_t row = 0; row < uint64_t{steps()} * batch(); ++row) {
    counts.spikes += lists.num[2 * row];
    counts.candidates += lists.num[2 * row + 1] - lists.num[2 * row];
  }
  for (uint32_t b = 0; b < batch(); ++b) {
    counts.dropped_spikes += dropped[2 * b];
    counts.dropped_candidates += dropped[2 * b + 1];
  }
  return counts;
}

std::span<const float> SpikingNetwork::potentials(size_t layer, const std::byte* state) const {
  const LayerResults& r = compiled_->results.at(layer);
  if (r.potentials.empty()) throw UsageError(fmt::format("the potentials of layer {} are not stored", layer));
  return {r.in<float>(compiled_->state_or_own(state), &SpikingResults::potentials),
          uint64_t{r.potentials.rows} * r.potentials.cols};
}

uint64_t SpikingNetwork::state_bytes() const { return compiled_->state_end; }

SpikingStateSize spiking_state_size(const std::vector<SpikingLayer>& layers,
                                    const SpikingNetworkOptions& options) {
  SpikingStateSize size;
  for (const ops::SpikingProblem& problem : ops::spiking_problems(layers, 1, 1, options)) {
    const SpikingResults of_layer = ops::results_of(problem);
    for (const SpikingResult& result : kSpikingResults)
      (result.matrix == &SpikingResults::dropped ? size.per_sample : size.per_step_and_sample) +=
          (of_layer.*result.matrix).bytes();
    size.fixed += kSpikingResults.size() * kLine;
  }
  return size;
}

uint64_t SpikingNetwork::stash_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < compiled_->results.size(); ++i)
    for (const SpikingResult& result : kSpikingResults)
      if (gradients_read(result, compiled_->problems[i]))
        bytes += (compiled_->results[i].*result.matrix).bytes();
  return bytes;
}

std::string SpikingNetwork::plan() const {
  std::string text;
  for (const ops::SpikingPlan& plan : compiled_->plans()) text += to_string(plan) + "\n";
  return text;
}

double SpikingNetwork::predicted_seconds() const {
  double seconds = 0;
  for (const ops::SpikingPlan& plan : compiled_->plans()) seconds += plan.chosen.total();
  return seconds;
}

}  // namespace tessera
