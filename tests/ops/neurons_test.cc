// The parameters of vertices of neurons that take currents, besides their operands.
#include "ops/spiking/neurons.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <span>

#include "kernels/host/spiking/neurons.h"
#include "ops/builder.h"

namespace tessera::ops {
namespace {

using program::Role;

program::FieldView view(const program::Program& program, const program::Field& field, uint32_t vertex) {
  const program::Box box = program::field_box(program, field, vertex);
  return {nullptr, Type::f32, box.rows, box.cols, box.cols, 1};
}

void expect_scratch(const NeuronsProblem& p) {
  program::Program program;
  const machine::Machine host = machine::host(2);
  const Builder b(program, host);
  const uint32_t wide = p.batch * p.neurons;
  const auto add = [&](const char* name, Role role, uint32_t rows, uint32_t cols) {
    return b.external(name, role, Type::f32, rows, cols);
  };
  NeuronsOperands o{.dynamics = add("dynamics", Role::input, 3, p.neurons)};
  if (p.recurrence != Recurrence::none)
    o.recurrent =
        add("recurrent", Role::input, p.recurrence == Recurrence::one_to_one ? 1 : p.neurons, p.neurons);
  o.potentials = add("potentials", p.gradients ? Role::input : Role::output, p.steps, wide);
  if (p.gradients) {
    o.dspikes = add("dspikes", Role::input, p.steps, wide);
    o.din = add("din", Role::output, p.steps, wide);
  } else {
    o.in = add("in", Role::input, p.steps, wide);
  }
  program.set_main(build_neurons(b, p, plan_neurons(p, o, host), o));

  const program::VertexGroup& group = program.compute_sets().front().groups.front();
  size_t most = 0;
  for (uint32_t i = 0; i < group.count(); ++i) {
    const auto shape_of = [&](size_t rows, size_t dynamics, size_t recurrent) {
      return kernels::neurons_shape(view(program, group.fields[rows], i),
                                    view(program, group.fields[dynamics], i),
                                    view(program, group.fields[recurrent], i));
    };
    namespace forward = kernels::neurons_forward_field;
    namespace backward = kernels::neurons_gradients_field;
    const kernels::NeuronsShape shape = p.gradients
                                            ? shape_of(backward::din, backward::dynamics, backward::recurrent)
                                            : shape_of(forward::in, forward::dynamics, forward::recurrent);
    most = std::max(most, kernels::NeuronsScratch(shape, p.gradients).floats);
  }
  const uint32_t given = view(program, group.fields.back(), 0).cols;
  EXPECT_GE(given, most);
}

TEST(Neurons, ListTheirOperandsAsTheCodeletDoesItsFields) {
  for (const bool gradients : {false, true}) {
    const program::Codelet& codelet =
        gradients ? kernels::neurons_gradients_codelet : kernels::neurons_forward_codelet;
    const std::span<const NeuronsOperand> operands = neurons_operands(gradients);
    ASSERT_EQ(operands.size() + 1, codelet.fields.size());  // except scratch memory
    for (size_t i = 0; i < operands.size(); ++i) {
      EXPECT_EQ(operands[i].name, codelet.fields[i].name);
      EXPECT_EQ(operands[i].is_result, codelet.fields[i].access == program::Access::out) << operands[i].name;
    }
  }
}

TEST(Neurons, NeedDynamicsAndCurrents) {
  program::Program program;
  const machine::Machine host = machine::host(2);
  const Builder b(program, host);
  const NeuronsProblem p{.neuron = {.spikes = false}, .neurons = 3, .steps = 2, .batch = 1};
  const NeuronsOperands dynamics{.dynamics = b.external("dynamics", Role::input, Type::f32, 3, 3)};
  for (const NeuronsOperands& o : {NeuronsOperands{}, dynamics})
    EXPECT_THROW(build_neurons(b, p, plan_neurons(p, o, host), o), UsageError);
}

TEST(Neurons, GetTheScratchThatTheirShapeNeeds) {
  for (const Recurrence recurrence : {Recurrence::none, Recurrence::one_to_one, Recurrence::all_to_all})
    for (const uint32_t neurons : {1U, 2U, 3U, 40U})
      for (const uint32_t batch : {1U, 70U})
        for (const bool gradients : {false, true}) {
          SCOPED_TRACE(fmt::format("recurrence {}, {} neurons, batch {}, gradients {}",
                                   static_cast<int>(recurrence), neurons, batch, gradients));
          expect_scratch({.neuron = {},
                          .neurons = neurons,
                          .steps = 5,
                          .batch = batch,
                          .recurrence = recurrence,
                          .gradients = gradients});
        }
}

}  // namespace
}  // namespace tessera::ops
