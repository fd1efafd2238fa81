#include "ops/spiking/neurons.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/spiking.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "product/pass.h"

namespace tessera {
namespace {

using program::Role;

/// An array of the caller, and the operand that it becomes in a program, if it is given.
struct Array {
  const char* name;
  Role role;
  const float* data;
  uint32_t rows;
  uint32_t cols;
  std::optional<ops::Operand>* optional;
  ops::Operand* always = nullptr;
};

}  // namespace

struct SpikingNeurons::Compiled {
  Compiled(const Neuron& neuron, uint32_t neurons, uint32_t steps, uint32_t batch,
           const SpikingNeuronsOptions& options)
      : machine(machine::host(options.threads)),
        problem{.neuron = neuron,
                .neurons = neurons,
                .steps = steps,
                .batch = batch,
                .recurrence = options.recurrence,
                .after_reset = options.after_reset} {
    ops::plan_neurons(problem, {}, machine);
  }

  /// The arrays of a call, each with its place among the operands.
  std::vector<Array> arrays(const Inputs& in, const Results& r, ops::NeuronsOperands& o) const {
    const uint32_t wide = problem.batch * problem.neurons, steps = problem.steps;
    std::vector<Array> all = parameters(in, o);
    all.push_back({"currents", Role::input, in.currents, steps, wide, nullptr, &o.in});
    all.push_back({"spikes", Role::output, r.spikes, steps, wide, &o.spikes});
    all.push_back({"i", Role::output, r.currents, steps, wide, &o.currents});
    all.push_back({"potentials", Role::output, r.potentials, steps, wide, &o.potentials});
    all.push_back({"membranes", Role::output, r.membranes, steps, wide, &o.membranes});
    return all;
  }
  std::vector<Array> arrays(const Inputs& in, const Upstream& up, const Gradients& g,
                            ops::NeuronsOperands& o) const {
    const uint32_t wide = problem.batch * problem.neurons, steps = problem.steps;
    std::vector<Array> all = parameters(in, o);
    all.push_back({"potentials", Role::input, up.potentials, steps, wide, &o.potentials});
    all.push_back({"i", Role::input, up.currents, steps, wide, &o.currents});
    all.push_back({"dspikes", Role::input, up.of_spikes, steps, wide, &o.dspikes});
    all.push_back({"di", Role::input, up.of_currents, steps, wide, &o.dcurrents});
    all.push_back({"dpotentials", Role::input, up.of_potentials, steps, wide, &o.dpotentials});
    all.push_back({"dmembranes", Role::input, up.of_membranes, steps, wide, &o.dmembranes});
    all.push_back({"the gradient of currents", Role::output, g.currents, steps, wide, nullptr, &o.din});
    all.push_back({"ddynamics", Role::output, g.dynamics, 3, problem.neurons, &o.ddynamics});
    all.push_back(
        {"drecurrent", Role::output, g.recurrent, recurrent_rows(), problem.neurons, &o.drecurrent});
    all.push_back({"dinitial", Role::output, g.initial, 2, wide, &o.dinitial});
    return all;
  }

  std::vector<Array> parameters(const Inputs& in, ops::NeuronsOperands& o) const {
    return {{"dynamics", Role::input, in.dynamics, 3, problem.neurons, nullptr, &o.dynamics},
            {"recurrent", Role::input, in.recurrent, recurrent_rows(), problem.neurons, &o.recurrent},
            {"initial", Role::input, in.initial, 2, problem.batch * problem.neurons, &o.initial}};
  }

  uint32_t recurrent_rows() const {
    return problem.recurrence == Recurrence::one_to_one ? 1 : problem.neurons;
  }

  /// The program for the arrays that are given, compiled when they are first.
  const Pass& pass_for(const std::vector<Array>& arrays, ops::NeuronsOperands& operands, bool gradients) {
    uint64_t key = gradients ? 1 : 0;
    for (const Array& array : arrays) key = key << 1 | (array.data != nullptr ? 1 : 0);
    const std::scoped_lock lock(mutex);
    std::unique_ptr<Pass>& pass = passes[key];
    if (pass != nullptr) return *pass;
    auto made = std::make_unique<Pass>(machine);
    for (const Array& array : arrays) {
      if (array.data == nullptr) continue;
      const ops::Operand operand = made->external(array.name, array.role, Type::f32, array.rows, array.cols);
      array.always != nullptr ? * array.always = operand : * array.optional = operand;
    }
    ops::NeuronsProblem of_pass = problem;
    of_pass.gradients = gradients;
    const ops::SpikingPlan plan = ops::plan_neurons(of_pass, operands, machine);
    made->compile({ops::build_neurons(made->builder(), of_pass, plan, operands)});
    pass = std::move(made);
    return *pass;
  }

  void run(const std::vector<Array>& arrays, ops::NeuronsOperands& operands, bool gradients) {
    std::vector<void*> data;
    for (const Array& array : arrays) {
      if (array.data != nullptr)
        data.push_back(const_cast<float*>(array.data));
      else if (array.always != nullptr)
        throw UsageError(fmt::format("{} is null; it must be an array", array.name));
    }
    pass_for(arrays, operands, gradients).run(data);
  }

  machine::Machine machine;
  ops::NeuronsProblem problem;
  std::mutex mutex;
  std::map<uint64_t, std::unique_ptr<Pass>> passes;
};

SpikingNeurons::SpikingNeurons(const Neuron& neuron, uint32_t neurons, uint32_t steps, uint32_t batch,
                               const SpikingNeuronsOptions& options)
    : compiled_(std::make_unique<Compiled>(neuron, neurons, steps, batch, options)) {}
SpikingNeurons::~SpikingNeurons() = default;
SpikingNeurons::SpikingNeurons(SpikingNeurons&&) noexcept = default;
SpikingNeurons& SpikingNeurons::operator=(SpikingNeurons&&) noexcept = default;

void SpikingNeurons::forward(const Inputs& in, const Results& results) const {
  ops::NeuronsOperands operands;
  compiled_->run(compiled_->arrays(in, results, operands), operands, false);
}

void SpikingNeurons::gradients(const Inputs& in, const Upstream& upstream, const Gradients& gradients) const {
  ops::NeuronsOperands operands;
  compiled_->run(compiled_->arrays(in, upstream, gradients, operands), operands, true);
}

}  // namespace tessera
