#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/spiking.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>

#include "machine/model/machine.h"
#include "ops/spiking/stack.h"
#include "product/pass.h"

namespace tessera {
namespace {

using ops::Operand;
using ops::SpikingMatrix;
using program::Role;

constexpr uint64_t kLine = 64;

/// A matrix that one program leaves for another, and its place in the state of a network.
struct Kept {
  SpikingMatrix matrix;
  uint64_t offset = 0;

  template <class T>
  const T* in(const std::byte* state) const {
    return reinterpret_cast<const T*>(state + offset);
  }
};

/// What a layer leaves behind a forward pass.
struct LayerResults {
  LayerResults(const ops::SpikingResults& of, uint64_t& end)
      : ids(place(of.ids, end)),
        num(place(of.num, end)),
        surrogate(place(of.surrogate, end)),
        resets(place(of.resets, end)),
        potentials(place(of.potentials, end)),
        currents(place(of.currents, end)),
        dropped(place(of.dropped, end)) {}

  Kept ids, num, surrogate, resets, potentials, currents, dropped;

 private:
  static Kept place(const SpikingMatrix& matrix, uint64_t& end) {
    const Kept kept{matrix, end};
    end += (matrix.bytes() + kLine - 1) / kLine * kLine;
    return kept;
  }
};

/// A pass whose arrays are the caller's or lie in the state.
class NetworkPass {
 public:
  explicit NetworkPass(const machine::Machine& machine) : pass_(machine) {}

  const ops::Builder& builder() const { return pass_.builder(); }

  Operand external(std::string name, Role role, const SpikingMatrix& matrix) {
    offsets_.emplace_back();
    return pass_.external(std::move(name), role, matrix.type, matrix.rows, matrix.cols);
  }
  /// In the state; absent if that is empty.
  std::optional<Operand> in_state(std::string name, Role role, const Kept& kept) {
    if (kept.matrix.empty()) return {};
    const Operand operand = external(std::move(name), role, kept.matrix);
    offsets_.back() = kept.offset;
    return operand;
  }

  void compile(program::StepId step) { pass_.compile({step}); }

  /// `arrays` are those of variables that do not lie in the state.
  void run(std::span<void* const> arrays, std::byte* state) const {
    std::vector<void*> all;
    for (const auto& offset : offsets_) {
      all.push_back(offset ? state + *offset : arrays.front());
      if (!offset) arrays = arrays.subspan(1);
    }
    pass_.run(all);
  }

 private:
  Pass pass_;
  std::vector<std::optional<uint64_t>> offsets_;
};

template <class T>
void* writable(const T* array) {
  return const_cast<T*>(array);
}

void require_array(const void* array, std::string_view name) {
  if (array == nullptr) throw UsageError(fmt::format("{} is null; it must be an array", name));
}

}  // namespace

struct SpikingNetwork::Compiled {
  Compiled(std::vector<SpikingLayer> of, uint32_t steps, uint32_t batch, const SpikingNetworkOptions& given)
      : layers(std::move(of)), options(given), machine(machine::host(given.threads)) {
    problems = ops::spiking_problems(layers, steps, batch, options);
    for (const ops::SpikingProblem& problem : problems) {
      for (const SpikingParameter& parameter : parameters_of(problem.layer)) parameters.push_back(parameter);
      results.emplace_back(ops::results_of(problem), state_end);
    }
    compile_forward();
  }

  /// What both passes take: lists of inputs and parameters, bound on each run, and the results of the layers.
  ops::SpikingStackOperands add_operands(NetworkPass& pass, Role role) const {
    const ops::SpikingProblem& first = problems[0];
    ops::SpikingStackOperands o;
    o.in_ids = pass.external("ids", Role::input, {Type::u16, first.steps, first.batch * first.in_capacity});
    o.in_num = pass.external("num", Role::input, {Type::u32, first.steps, first.batch * 2});
    for (size_t i = 0; i < parameters.size(); ++i)
      o.parameters.push_back(pass.external(fmt::format("{}{}", parameters[i].name, i), Role::input,
                                           {Type::f32, parameters[i].rows, parameters[i].cols}));
    for (size_t i = 0; i < layers.size(); ++i) o.layers.push_back(operands_of(pass, i, role));
    return o;
  }

  /// The results of layer i with this role.
  ops::SpikingLayerOperands operands_of(NetworkPass& pass, size_t i, Role role) const {
    ops::SpikingLayerOperands o;
    const LayerResults& r = results[i];
    const auto named = [&](std::string_view name) { return fmt::format("{}{}", name, i); };
    o.ids = pass.in_state(named("ids"), role, r.ids);
    o.num = pass.in_state(named("num"), role, r.num);
    o.surrogate = pass.in_state(named("surrogate"), role, r.surrogate);
    o.resets = pass.in_state(named("resets"), role, r.resets);
    const bool reads_potentials = layers[i].neuron.spikes || options.learns_dynamics;
    if (role == Role::output || reads_potentials)
      o.potentials = pass.in_state(named("potentials"), role, r.potentials);
    o.currents = pass.in_state(named("currents"), role, r.currents);
    return o;
  }

  void compile_forward() {
    NetworkPass& pass = forward.emplace(machine);
    ops::SpikingStackOperands operands = add_operands(pass, Role::output);
    for (size_t i = 0; i < layers.size(); ++i)
      operands.layers[i].dropped =
          pass.in_state(fmt::format("dropped{}", i), Role::output, results[i].dropped);
    operands.control = pass.external("control", Role::input, {Type::u32, 1, ops::spiking_control_columns()});
    operands.gradient_threshold = pass.external("gradient_threshold", Role::input, {Type::f32, 1, 1});
    ops::BuiltSpikingStack built = ops::build_spiking_stack(pass.builder(), problems, operands);
    plans = std::move(built.plans);
    pass.compile(built.step);
  }

  void compile_gradients() {
    NetworkPass& pass = backward.emplace(machine);
    const ops::SpikingProblem& first = problems.front();
    ops::SpikingStackOperands operands = add_operands(pass, Role::input);
    for (size_t i = 0; options.hidden_upstream && i + 1 < layers.size(); ++i)
      operands.layers[i].upstream =
          pass.external(fmt::format("upstream{}", i), Role::input, ops::upstream_of(problems[i]));
    operands.layers.back().upstream =
        pass.external("upstream", Role::input, ops::upstream_of(problems.back()));
    for (const ops::SpikingProblem& problem : problems)
      for (const SpikingParameter& parameter : ops::learned_parameters(problem))
        operands.parameter_gradients.push_back(
            pass.external(fmt::format("gradient{}", operands.parameter_gradients.size()), Role::output,
                          {Type::f32, parameter.rows, parameter.cols}));
    if (options.input_gradient)
      operands.din =
          pass.external("din", Role::output, {Type::f32, first.steps, first.batch * first.in_capacity});
    ops::BuiltSpikingStack built = ops::build_spiking_stack_gradients(pass.builder(), problems, operands);
    gradient_plans = std::move(built.plans);
    pass.compile(built.step);
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

  /// Memory of the network, for callers without a state; on a cache line.
  std::byte* own() {
    if (own_state == nullptr) own_state.reset(new std::byte[state_end + kLine]);
    const auto address = reinterpret_cast<uintptr_t>(own_state.get());
    return own_state.get() + (kLine - address % kLine) % kLine;
  }
  const std::byte* state_or_own(const std::byte* state) { return state == nullptr ? own() : state; }

  std::vector<SpikingLayer> layers;
  SpikingNetworkOptions options;
  machine::Machine machine;
  std::vector<ops::SpikingProblem> problems;
  std::vector<SpikingParameter> parameters;
  uint64_t state_end = 0;
  std::vector<LayerResults> results;
  std::unique_ptr<std::byte[]> own_state;
  std::once_flag compiled_backward;
  std::optional<NetworkPass> forward, backward;
  std::vector<ops::SpikingPlan> plans, gradient_plans;
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
  uint32_t words[] = {control.most_listed, static_cast<uint32_t>(control.seed),
                      static_cast<uint32_t>(control.seed >> 32), control.step};
  float gradient_threshold = control.gradient_threshold;
  std::vector<void*> arrays = {writable(in.ids), writable(in.num)};
  for (const float* parameter : parameters) arrays.push_back(writable(parameter));
  arrays.push_back(words);
  arrays.push_back(&gradient_threshold);
  c.forward->run(arrays, state == nullptr ? c.own() : state);
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
  size_t wanted = 0;
  for (size_t i = 0; i < c.layers.size(); ++i) wanted += ops::learned_parameters(c.problems[i]).size();
  if (parameter_gradients.size() != wanted)
    throw UsageError(fmt::format("this network has gradients of {} parameters; given are arrays for {}",
                                 wanted, parameter_gradients.size()));
  for (float* gradient : parameter_gradients) require_array(gradient, "a gradient");
  std::call_once(c.compiled_backward, [&] { c.compile_gradients(); });
  std::vector<void*> arrays = {writable(in.ids), writable(in.num)};
  for (const float* parameter : parameters) arrays.push_back(writable(parameter));
  for (const float* of_hidden : hidden_upstream) arrays.push_back(writable(of_hidden));
  arrays.push_back(writable(upstream));
  arrays.insert(arrays.end(), parameter_gradients.begin(), parameter_gradients.end());
  if (input_gradient != nullptr) arrays.push_back(input_gradient);
  c.backward->run(arrays, const_cast<std::byte*>(c.state_or_own(state)));
}

size_t SpikingNetwork::layers() const { return compiled_->layers.size(); }
const SpikingLayer& SpikingNetwork::layer(size_t index) const { return compiled_->layers.at(index); }
uint32_t SpikingNetwork::steps() const { return compiled_->problems[0].steps; }
uint32_t SpikingNetwork::batch() const { return compiled_->problems[0].batch; }

SpikeLists SpikingNetwork::spikes(size_t layer, const std::byte* state) const {
  const LayerResults& r = compiled_->results.at(layer);
  if (r.ids.matrix.empty()) throw UsageError(fmt::format("layer {} has no spikes", layer));
  const std::byte* from = compiled_->state_or_own(state);
  return {r.ids.in<uint16_t>(from), r.num.in<uint32_t>(from), compiled_->problems[layer].room()};
}

SpikingCounts SpikingNetwork::counts(size_t layer, const std::byte* state) const {
  const SpikeLists lists = spikes(layer, state);
  const auto* dropped = compiled_->results[layer].dropped.in<uint32_t>(compiled_->state_or_own(state));
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
  const Kept& kept = compiled_->results.at(layer).potentials;
  if (kept.matrix.empty()) throw UsageError(fmt::format("the potentials of layer {} are not stored", layer));
  return {kept.in<float>(compiled_->state_or_own(state)), uint64_t{kept.matrix.rows} * kept.matrix.cols};
}

uint64_t SpikingNetwork::state_bytes() const { return compiled_->state_end; }

SpikingStateSize spiking_state_size(const std::vector<SpikingLayer>& layers,
                                    const SpikingNetworkOptions& options) {
  SpikingStateSize size;
  for (const ops::SpikingProblem& problem : ops::spiking_problems(layers, 1, 1, options)) {
    const ops::SpikingResults r = ops::results_of(problem);
    const SpikingMatrix of_steps[] = {r.ids, r.num, r.surrogate, r.resets, r.potentials, r.currents};
    for (const SpikingMatrix& matrix : of_steps) size.per_step_and_sample += matrix.bytes();
    size.per_sample += r.dropped.bytes();
    size.fixed += (std::size(of_steps) + 1) * kLine;
  }
  return size;
}

uint64_t SpikingNetwork::stash_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < compiled_->results.size(); ++i) {
    const LayerResults& r = compiled_->results[i];
    for (const Kept* kept : {&r.ids, &r.num, &r.surrogate, &r.resets, &r.currents})
      bytes += kept->matrix.bytes();
    if (compiled_->layers[i].neuron.spikes || compiled_->options.learns_dynamics)
      bytes += r.potentials.matrix.bytes();
  }
  return bytes;
}

std::string SpikingNetwork::plan() const {
  std::string text;
  for (const auto* plans : {&compiled_->plans, &compiled_->gradient_plans})
    for (const ops::SpikingPlan& plan : *plans) text += to_string(plan) + "\n";
  return text;
}

double SpikingNetwork::predicted_seconds() const {
  double seconds = 0;
  for (const auto* plans : {&compiled_->plans, &compiled_->gradient_plans})
    for (const ops::SpikingPlan& plan : *plans) seconds += plan.chosen.total();
  return seconds;
}

}  // namespace tessera
