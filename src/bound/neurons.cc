#include "ops/spiking/neurons.h"

#include <tessera/spiking.h>

#include <array>
#include <memory>
#include <span>

#include "base/on_demand.h"
#include "bound/bound_program.h"
#include "bound/views.h"

namespace tessera {
namespace {

using ops::NeuronsOperands;
using program::Role;

enum class Shape : uint8_t { sequence, dynamics, recurrent, initial };

/// An array of a call, and its place among the operands: of those that are always there, or of the others.
struct NamedOperand {
  const char* name;
  Role role;
  Shape shape;
  std::optional<ops::Operand> NeuronsOperands::*optional;
  ops::Operand NeuronsOperands::*always = nullptr;
};

// In the order of a call's arrays.
using O = NeuronsOperands;
constexpr std::array kForward = {
    NamedOperand{"dynamics", Role::input, Shape::dynamics, nullptr, &O::dynamics},
    NamedOperand{"recurrent", Role::input, Shape::recurrent, &O::recurrent},
    NamedOperand{"initial", Role::input, Shape::initial, &O::initial},
    NamedOperand{"currents", Role::input, Shape::sequence, nullptr, &O::in},
    NamedOperand{"spikes", Role::output, Shape::sequence, &O::spikes},
    NamedOperand{"i", Role::output, Shape::sequence, &O::currents},
    NamedOperand{"potentials", Role::output, Shape::sequence, &O::potentials},
    NamedOperand{"membranes", Role::output, Shape::sequence, &O::membranes},
};
constexpr std::array kGradients = {
    NamedOperand{"dynamics", Role::input, Shape::dynamics, nullptr, &O::dynamics},
    NamedOperand{"recurrent", Role::input, Shape::recurrent, &O::recurrent},
    NamedOperand{"initial", Role::input, Shape::initial, &O::initial},
    NamedOperand{"potentials", Role::input, Shape::sequence, &O::potentials},
    NamedOperand{"i", Role::input, Shape::sequence, &O::currents},
    NamedOperand{"dspikes", Role::input, Shape::sequence, &O::dspikes},
    NamedOperand{"di", Role::input, Shape::sequence, &O::dcurrents},
    NamedOperand{"dpotentials", Role::input, Shape::sequence, &O::dpotentials},
    NamedOperand{"dmembranes", Role::input, Shape::sequence, &O::dmembranes},
    NamedOperand{"the gradient of currents", Role::output, Shape::sequence, nullptr, &O::din},
    NamedOperand{"ddynamics", Role::output, Shape::dynamics, &O::ddynamics},
    NamedOperand{"drecurrent", Role::output, Shape::recurrent, &O::drecurrent},
    NamedOperand{"dinitial", Role::output, Shape::initial, &O::dinitial},
};

}  // namespace

struct SpikingNeurons::Compiled {
  using Data = std::span<const float* const>;

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

  void run(std::span<const NamedOperand> named, Data data, bool gradients) const {
    uint64_t given = gradients ? 1 : 0;
    for (size_t i = 0; i < named.size(); ++i) {
      given = given << 1 | (data[i] != nullptr ? 1 : 0);
      if (named[i].always != nullptr) require_array(data[i], named[i].name);
    }
    const bound::BoundProgram& program = programs.at(given, [&] { return compile(named, data, gradients); });
    bound::Arrays arrays(program);
    for (const float* array : data)
      if (array != nullptr) arrays.add(array);
    program.run(arrays);
  }

  /// The program for the arrays that are given.
  bound::BoundProgram compile(std::span<const NamedOperand> named, Data data, bool gradients) const {
    program::Program program;
    const ops::Builder builder(program, machine);
    NeuronsOperands operands;
    for (size_t i = 0; i < named.size(); ++i) {
      if (data[i] == nullptr) continue;
      const auto [name, role, shape, optional, always] = named[i];
      const auto [rows, cols] = size_of(shape);
      const ops::Operand operand = builder.external(name, role, Type::f32, rows, cols);
      if (always != nullptr)
        operands.*always = operand;
      else
        operands.*optional = operand;
    }
    ops::NeuronsProblem of_pass = problem;
    of_pass.gradients = gradients;
    const ops::SpikingPlan plan = ops::plan_neurons(of_pass, operands, machine);
    program.set_main(ops::build_neurons(builder, of_pass, plan, operands));
    return {std::move(program), machine};
  }

  std::pair<uint32_t, uint32_t> size_of(Shape shape) const {
    const uint32_t wide = problem.batch * problem.neurons;
    switch (shape) {
      case Shape::sequence: return {problem.steps, wide};
      case Shape::dynamics: return {3, problem.neurons};
      case Shape::initial: return {2, wide};
      case Shape::recurrent: break;
    }
    return {problem.recurrence == Recurrence::one_to_one ? 1 : problem.neurons, problem.neurons};
  }

  machine::Machine machine;
  ops::NeuronsProblem problem;
  base::OnDemand<bound::BoundProgram> programs;  ///< by the arrays that are given
};

SpikingNeurons::SpikingNeurons(const Neuron& neuron, uint32_t neurons, uint32_t steps, uint32_t batch,
                               const SpikingNeuronsOptions& options)
    : compiled_(std::make_shared<Compiled>(neuron, neurons, steps, batch, options)) {}

void SpikingNeurons::forward(const Inputs& in, const Results& results) const {
  const std::array<const float*, kForward.size()> data = {
      in.dynamics,    in.recurrent,     in.initial,         in.currents,
      results.spikes, results.currents, results.potentials, results.membranes};
  compiled_->run(kForward, data, false);
}

void SpikingNeurons::gradients(const Inputs& in, const Upstream& up, const Gradients& of) const {
  const std::array<const float*, kGradients.size()> data = {
      in.dynamics,  in.recurrent,   in.initial,       up.potentials,   up.currents,
      up.of_spikes, up.of_currents, up.of_potentials, up.of_membranes, of.currents,
      of.dynamics,  of.recurrent,   of.initial};
  compiled_->run(kGradients, data, true);
}

}  // namespace tessera
