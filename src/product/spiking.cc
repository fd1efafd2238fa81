#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/spiking.h>

#include <algorithm>
#include <optional>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "machine/model/machine.h"
#include "ops/spiking/stack.h"

namespace tessera {
namespace {

using engine::Binding;
using ops::Operand;
using ops::SpikingMatrix;
using program::Role;

/// A matrix of a network, kept from one program to another.
struct Kept {
  explicit Kept(const SpikingMatrix& of) : matrix(of), bytes(std::max<uint64_t>(of.bytes(), 1)) {}

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(bytes.data()));
  }

  SpikingMatrix matrix;
  std::vector<std::byte> bytes;
};

/// What a layer leaves behind a forward pass.
struct LayerResults {
  explicit LayerResults(const ops::SpikingResults& of)
      : ids(of.ids),
        num(of.num),
        surrogate(of.surrogate),
        resets(of.resets),
        potentials(of.potentials),
        currents(of.currents),
        dropped(of.dropped) {}

  Kept ids, num, surrogate, resets, potentials, currents, dropped;
};

/// One pass as a program, whose external variables are bound in the order in which they were added.
class Pass {
 public:
  explicit Pass(const machine::Machine& machine) : machine_(machine), builder_(program_, machine_) {}

  const ops::Builder& builder() const { return builder_; }

  /// Bound on each run.
  Operand external(std::string name, Role role, const SpikingMatrix& matrix) {
    externals_.push_back(builder_.external(std::move(name), role, matrix.type, matrix.rows, matrix.cols));
    data_.push_back(nullptr);
    return externals_.back();
  }
  /// Bound to what is kept; absent if that is empty.
  std::optional<Operand> external(std::string name, Role role, const Kept& kept) {
    if (kept.matrix.empty()) return {};
    const Operand operand = external(std::move(name), role, kept.matrix);
    data_.back() = kept.as<void>();
    return operand;
  }

  void compile(std::vector<program::StepId> steps) {
    program_.set_main(builder_.sequence(std::move(steps)));
    engine_.emplace(compiler::compile(std::move(program_), machine_));
  }

  /// `arrays` are those of variables that nothing kept is bound to.
  void run(std::span<void* const> arrays) const {
    std::vector<Binding> bindings;
    size_t next = 0;
    for (size_t i = 0; i < externals_.size(); ++i)
      bindings.push_back(
          {externals_[i].variable, data_[i] != nullptr ? data_[i] : arrays[next++], externals_[i].cols(), 1});
    engine_->run(bindings, {.profile = false});
  }

 private:
  const machine::Machine& machine_;
  program::Program program_;
  ops::Builder builder_;
  std::vector<Operand> externals_;
  std::vector<void*> data_;
  std::optional<engine::Engine> engine_;
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
      results.emplace_back(ops::results_of(problem));
    }
    compile_forward();
  }

  /// What both passes take: lists of inputs and parameters, bound on each run, and the results of the layers.
  ops::SpikingStackOperands add_operands(Pass& pass, Role role) const {
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
  ops::SpikingLayerOperands operands_of(Pass& pass, size_t i, Role role) const {
    ops::SpikingLayerOperands o;
    const LayerResults& r = results[i];
    const auto named = [&](std::string_view name) { return fmt::format("{}{}", name, i); };
    o.ids = pass.external(named("ids"), role, r.ids);
    o.num = pass.external(named("num"), role, r.num);
    o.surrogate = pass.external(named("surrogate"), role, r.surrogate);
    o.resets = pass.external(named("resets"), role, r.resets);
    const bool reads_potentials = layers[i].neuron.spikes || options.learns_dynamics;
    if (role == Role::output || reads_potentials)
      o.potentials = pass.external(named("potentials"), role, r.potentials);
    o.currents = pass.external(named("currents"), role, r.currents);
    return o;
  }

  void compile_forward() {
    Pass& pass = forward.emplace(machine);
    ops::SpikingStackOperands operands = add_operands(pass, Role::output);
    for (size_t i = 0; i < layers.size(); ++i)
      operands.layers[i].dropped =
          pass.external(fmt::format("dropped{}", i), Role::output, results[i].dropped);
    operands.control = pass.external("control", Role::input, {Type::u32, 1, ops::spiking_control_columns()});
    operands.gradient_threshold = pass.external("gradient_threshold", Role::input, {Type::f32, 1, 1});
    ops::BuiltSpikingStack built = ops::build_spiking_stack(pass.builder(), problems, operands);
    plans = std::move(built.plans);
    pass.compile({built.step});
  }

  void compile_gradients() {
    Pass& pass = backward.emplace(machine);
    const ops::SpikingProblem& first = problems.front();
    ops::SpikingStackOperands operands = add_operands(pass, Role::input);
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
    pass.compile({built.step});
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
    for (uint64_t row = 0; row < uint64_t{first.steps} * first.batch; ++row) {
      const uint32_t spikes = in.num[2 * row], listed = in.num[2 * row + 1];
      if (spikes > listed || listed > in.capacity)
        throw UsageError(fmt::format("step {} of sample {} lists {} spikes and {} neurons, with room for {}",
                                     row / first.batch, row % first.batch, spikes, listed, in.capacity));
      const uint16_t* ids = in.ids + row * in.capacity;
      if (listed == 0) continue;
      const uint16_t most = *std::max_element(ids, ids + listed);
      if (most >= first.layer.inputs)
        throw UsageError(fmt::format("step {} of sample {} lists input {}; there are {}", row / first.batch,
                                     row % first.batch, most, first.layer.inputs));
    }
  }

  std::vector<SpikingLayer> layers;
  SpikingNetworkOptions options;
  machine::Machine machine;
  std::vector<ops::SpikingProblem> problems;
  std::vector<SpikingParameter> parameters;
  std::vector<LayerResults> results;
  std::optional<Pass> forward, backward;
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
                             const SpikingControl& control) {
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
  c.forward->run(arrays);
  c.ran = true;
}

void SpikingNetwork::gradients(const SpikeLists& in, std::span<const float* const> parameters,
                               const float* upstream, std::span<float* const> parameter_gradients,
                               float* input_gradient) {
  Compiled& c = *compiled_;
  if (!c.options.trains) throw UsageError("this network was made without training, so it has no gradients");
  if (!c.ran) throw UsageError("gradients follow a forward pass; there was none");
  c.require_inputs(in, parameters);
  require_array(upstream, "upstream");
  if (c.options.input_gradient != (input_gradient != nullptr))
    throw UsageError(c.options.input_gradient ? "this network has gradients of inputs; pass an array for them"
                                              : "this network was made without gradients of inputs");
  size_t wanted = 0;
  for (size_t i = 0; i < c.layers.size(); ++i) wanted += ops::learned_parameters(c.problems[i]).size();
  if (parameter_gradients.size() != wanted)
    throw UsageError(fmt::format("this network has gradients of {} parameters; given are arrays for {}",
                                 wanted, parameter_gradients.size()));
  for (float* gradient : parameter_gradients) require_array(gradient, "a gradient");
  if (!c.backward) c.compile_gradients();
  std::vector<void*> arrays = {writable(in.ids), writable(in.num)};
  for (const float* parameter : parameters) arrays.push_back(writable(parameter));
  arrays.push_back(writable(upstream));
  arrays.insert(arrays.end(), parameter_gradients.begin(), parameter_gradients.end());
  if (input_gradient != nullptr) arrays.push_back(input_gradient);
  c.backward->run(arrays);
}

size_t SpikingNetwork::layers() const { return compiled_->layers.size(); }
const SpikingLayer& SpikingNetwork::layer(size_t index) const { return compiled_->layers.at(index); }
uint32_t SpikingNetwork::steps() const { return compiled_->problems[0].steps; }
uint32_t SpikingNetwork::batch() const { return compiled_->problems[0].batch; }

SpikeLists SpikingNetwork::spikes(size_t layer) const {
  const LayerResults& r = compiled_->results.at(layer);
  if (r.ids.matrix.empty()) throw UsageError(fmt::format("layer {} has no spikes", layer));
  return {r.ids.as<uint16_t>(), r.num.as<uint32_t>(), compiled_->problems[layer].room()};
}

SpikingCounts SpikingNetwork::counts(size_t layer) const {
  const SpikeLists lists = spikes(layer);
  const Kept& dropped = compiled_->results[layer].dropped;
  SpikingCounts counts;
  for (uint64_t row = 0; row < uint64_t{steps()} * batch(); ++row) {
    counts.spikes += lists.num[2 * row];
    counts.candidates += lists.num[2 * row + 1] - lists.num[2 * row];
  }
  for (uint32_t b = 0; b < batch(); ++b) {
    counts.dropped_spikes += dropped.as<uint32_t>()[2 * b];
    counts.dropped_candidates += dropped.as<uint32_t>()[2 * b + 1];
  }
  return counts;
}

std::span<const float> SpikingNetwork::potentials(size_t layer) const {
  const Kept& kept = compiled_->results.at(layer).potentials;
  if (kept.matrix.empty()) throw UsageError(fmt::format("the potentials of layer {} are not stored", layer));
  return {kept.as<float>(), uint64_t{kept.matrix.rows} * kept.matrix.cols};
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
