// Spiking layers one after the other: each takes the lists of the one before.
#pragma once

#include <tessera/spiking.h>

#include <optional>
#include <vector>

#include "ops/spiking/spiking.h"

namespace tessera::ops {

/// The problem of each layer. Throws UsageError unless each takes the spikes of the one before, and for
/// impossible layers or sizes.
std::vector<SpikingProblem> spiking_problems(const std::vector<SpikingLayer>& layers, uint32_t steps,
                                             uint32_t batch, const SpikingNetworkOptions& options);

/// The parameters of a layer that have gradients.
std::vector<SpikingParameter> learned_parameters(const SpikingProblem& problem);

/// What the layers leave for others: as SpikingOperands has it.
struct SpikingLayerOperands {
  std::optional<Operand> ids = {}, num = {}, surrogate = {}, resets = {}, potentials = {}, currents = {},
                         dropped = {};
  /// Gradients: of the results, as far as what comes after the layers depends on them.
  std::optional<Operand> upstream = {};
};

struct SpikingStackOperands {
  Operand in_ids, in_num;
  std::vector<Operand> parameters = {};                          ///< of all layers, one after the other
  std::optional<Operand> control = {}, gradient_threshold = {};  ///< forward
  std::vector<SpikingLayerOperands> layers = {};
  std::vector<Operand> parameter_gradients = {};  ///< gradients: of what each layer learns
  std::optional<Operand> din = {};                ///< gradients
};

/// The steps, and the plan of each layer.
struct BuiltSpikingStack {
  program::StepId step = 0;
  std::vector<SpikingPlan> plans;
};

/// Adds the forward pass of all layers on a host.
BuiltSpikingStack build_spiking_stack(const Builder& builder, const std::vector<SpikingProblem>& problems,
                                      const SpikingStackOperands& operands);
/// Adds the gradients of all layers on a host.
BuiltSpikingStack build_spiking_stack_gradients(const Builder& builder,
                                                const std::vector<SpikingProblem>& problems,
                                                const SpikingStackOperands& operands);

}  // namespace tessera::ops
