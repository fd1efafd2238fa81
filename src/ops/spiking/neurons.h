// Spiking neurons that take currents over whole sequences, and their gradients: planned, and added to a tile
// program.
#pragma once

#include <tessera/spiking.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/spiking/spiking.h"

namespace tessera::ops {

/// Sequences are matrices of steps × (batch · neurons).
struct NeuronsProblem {
  Neuron neuron;
  uint32_t neurons = 0;
  uint32_t steps = 0;
  uint32_t batch = 0;
  Recurrence recurrence = Recurrence::none;
  bool after_reset = false;  ///< whether initial potentials are v, after a reset
  bool gradients = false;    ///< computes gradients instead of the forward pass
};

/// Operands of a program; absent results are not computed, absent gradients are 0.
struct NeuronsOperands {
  std::optional<Operand> in = {};          ///< forward: currents
  std::optional<Operand> dynamics = {};    ///< 3 × neurons: decays, decays of currents, thresholds
  std::optional<Operand> recurrent = {};   ///< neurons × neurons, or one row
  std::optional<Operand> initial = {};     ///< 2 rows: potentials and currents before the first step
  std::optional<Operand> spikes = {};      ///< results of the forward pass, which gradients read where they
                                           ///< need them
  std::optional<Operand> currents = {};    ///< i
  std::optional<Operand> potentials = {};  ///< u
  std::optional<Operand> membranes = {};   ///< v
  /// For gradients: the results' gradients, then the computed gradients of the inputs.
  std::optional<Operand> dspikes = {}, dcurrents = {}, dpotentials = {}, dmembranes = {};
  std::optional<Operand> din = {}, drecurrent = {}, ddynamics = {}, dinitial = {};
};

/// An operand of a pass, and the field of the codelet by this name, which takes it.
struct NeuronsOperand {
  enum class Kind : uint8_t { sequence, dynamics, recurrent, initial };

  std::string_view name;
  std::optional<Operand> NeuronsOperands::*operand;
  Kind kind;
  bool is_result = false;

  bool has_samples() const { return kind == Kind::sequence || kind == Kind::initial; }
  uint32_t rows(const NeuronsProblem& problem) const;
  uint32_t cols(const NeuronsProblem& problem, uint32_t samples) const {
    return (has_samples() ? samples : 1U) * problem.neurons;
  }
};

/// The operands of a pass, in the order of the codelet's fields.
std::span<const NeuronsOperand> neurons_operands(bool gradients);

/// Partitions the batch by cost. Throws UsageError for impossible sizes and neurons, and for machines other
/// than hosts.
SpikingPlan plan_neurons(const NeuronsProblem& problem, const NeuronsOperands& operands,
                         const machine::Machine& machine);

/// Adds the neurons, or their gradients. Throws UsageError for operands of another type or shape.
program::StepId build_neurons(const Builder& builder, const NeuronsProblem& problem, const SpikingPlan& plan,
                              const NeuronsOperands& operands);

}  // namespace tessera::ops
