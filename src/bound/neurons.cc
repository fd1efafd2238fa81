#include "ops/spiking/neurons.h"

#include <tessera/spiking.h>

#include <array>
#include <memory>
#include <span>
#include <string>

#include "base/on_demand.h"
#include "bound/bound_program.h"
#include "bound/views.h"

namespace tessera {

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

  /// Runs a pass on arrays in the order of neurons_operands().
  void run(Data data, bool gradients) const {
    uint64_t given = gradients ? 1 : 0;
    for (const float* array : data) given = given << 1 | (array != nullptr ? 1 : 0);
    const bound::BoundProgram& program = programs.at(given, [&] { return compile(data, gradients); });
    bound::Arrays arrays(program);
    for (const float* array : data)
      if (array != nullptr) arrays.add(array);
    program.run(arrays);
  }

  /// The program for the arrays that are given.
  bound::BoundProgram compile(Data data, bool gradients) const {
    using program::Role;
    program::Program program;
    const ops::Builder builder(program, machine);
    ops::NeuronsProblem of_pass = problem;
    of_pass.gradients = gradients;
    ops::NeuronsOperands operands;
    const std::span<const ops::NeuronsOperand> all = ops::neurons_operands(gradients);
    for (size_t i = 0; i < all.size(); ++i)
      if (data[i] != nullptr)
        operands.*all[i].operand =
            builder.external(std::string(all[i].name), all[i].is_result ? Role::output : Role::input,
                             Type::f32, all[i].rows(problem), all[i].cols(problem, problem.batch));
    const ops::SpikingPlan plan = ops::plan_neurons(of_pass, operands, machine);
    program.set_main(ops::build_neurons(builder, of_pass, plan, operands));
    return {std::move(program), machine};
  }

  machine::Machine machine;
  ops::NeuronsProblem problem;
  base::OnDemand<bound::BoundProgram> programs;  ///< by the arrays that are given
};

SpikingNeurons::SpikingNeurons(const Neuron& neuron, uint32_t neurons, uint32_t steps, uint32_t batch,
                               const SpikingNeuronsOptions& options)
    : compiled_(std::make_shared<Compiled>(neuron, neurons, steps, batch, options)) {}

void SpikingNeurons::forward(const Inputs& in, const Results& results) const {
  require_array(in.dynamics, "dynamics");
  require_array(in.currents, "currents");
  const std::array<const float*, 8> data = {in.currents,        in.recurrent,     in.dynamics,
                                            in.initial,         results.spikes,   results.currents,
                                            results.potentials, results.membranes};
  compiled_->run(data, false);
}

void SpikingNeurons::gradients(const Inputs& in, const Upstream& up, const Gradients& of) const {
  require_array(in.dynamics, "dynamics");
  require_array(of.currents, "the gradient of currents");
  const std::array<const float*, 13> data = {up.potentials,   up.currents,  in.recurrent,   in.dynamics,
                                             in.initial,      up.of_spikes, up.of_currents, up.of_potentials,
                                             up.of_membranes, of.currents,  of.recurrent,   of.dynamics,
                                             of.initial};
  compiled_->run(data, true);
}

}  // namespace tessera
