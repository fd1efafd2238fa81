// Spiking layers one after the other, each of which takes the lists of the layer before.
#pragma once

#include <tessera/spiking.h>

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/spiking/spiking.h"

namespace tessera::ops {

/// The problem of each layer. Throws UsageError unless each layer takes the spikes of the layer before, and
/// for impossible layers or sizes.
std::vector<SpikingProblem> spiking_problems(const std::vector<SpikingLayer>& layers, uint32_t steps,
                                             uint32_t batch, const SpikingNetworkOptions& options);

/// The parameters of a layer that have gradients.
std::vector<SpikingParameter> learned_parameters(const SpikingProblem& problem);

/// A kind of result, which some layers have.
struct SpikingResult {
  std::string_view name;
  SpikingMatrix SpikingResults::*matrix;
  std::optional<Operand> SpikingLayerOperands::*operand;
};
inline constexpr std::array kSpikingResults = {
    SpikingResult{"ids", &SpikingResults::ids, &SpikingLayerOperands::ids},
    SpikingResult{"num", &SpikingResults::num, &SpikingLayerOperands::num},
    SpikingResult{"potentials", &SpikingResults::potentials, &SpikingLayerOperands::potentials},
    SpikingResult{"surrogate", &SpikingResults::surrogate, &SpikingLayerOperands::surrogate},
    SpikingResult{"resets", &SpikingResults::resets, &SpikingLayerOperands::resets},
    SpikingResult{"currents", &SpikingResults::currents, &SpikingLayerOperands::currents},
    SpikingResult{"dropped", &SpikingResults::dropped, &SpikingLayerOperands::dropped},
};

struct SpikingStackOperands {
  Operand in_ids, in_num;
  std::vector<Operand> parameters = {};                          ///< parameters of all layers, one layer
                                                                 ///< after the other
  std::optional<Operand> control = {}, gradient_threshold = {};  ///< forward
  std::vector<SpikingLayerOperands> layers = {};
  std::vector<Operand> parameter_gradients = {};  ///< for gradients: of the learned parameters of each layer
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
