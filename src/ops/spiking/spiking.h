// Spiking layers over whole sequences, and their gradients: planned, and added to a tile program.
#pragma once

#include <tessera/spiking.h>
#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "machine/model/machine.h"
#include "ops/batch_partition.h"
#include "ops/builder.h"
#include "ops/plan.h"

namespace tessera::ops {

struct SpikingProblem {
  SpikingLayer layer;
  uint32_t steps = 0;
  uint32_t batch = 0;
  uint32_t in_capacity = 0;      ///< capacity of the inputs' lists, per step and sample
  uint32_t capacity = 0;         ///< capacity of the layer's lists; 0: all neurons
  bool trains = true;            ///< whether gradients follow a forward pass
  bool learns_dynamics = true;   ///< whether there are gradients of decays and thresholds
  bool gradients = false;        ///< computes gradients of inputs and parameters, instead of the forward pass
  bool input_gradient = true;    ///< for gradients: whether inputs have them
  uint32_t operation = 0;        ///< number of the random stream by which full lists drop neurons
  uint32_t substream_words = 0;  ///< numbers of that stream's sub-stream, at the end of the control row
  /// Expected means per step and sample, for planning: spikes of the inputs, and listed neurons.
  double expected_inputs = 0;
  double expected_listed = 0;

  uint32_t room() const { return capacity == 0 ? layer.neurons : capacity; }
};

/// Sizes that lists of spikes must fit.
struct SpikeListRoom {
  uint32_t batch = 0;
  uint32_t capacity = 0;  ///< entries of each list
  uint32_t neurons = 0;   ///< number of neurons; ids count from 0
};

/// Throws UsageError for lists of `steps` steps with counts beyond their capacity, or ids of neurons that do
/// not exist, neither of which kernels check.
void check_lists(const uint16_t* ids, const uint32_t* num, uint64_t steps, const SpikeListRoom& room);

using SpikingPlan = Plan<BatchPartition>;

/// Partitions the batch by cost. Throws UsageError for impossible sizes, and for machines other than hosts.
SpikingPlan plan_spiking(const SpikingProblem& problem, const machine::Machine& machine);

/// Type and shape of a result of spiking layers; rows are steps.
struct SpikingMatrix {
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;

  bool empty() const { return rows == 0 || cols == 0; }
  uint64_t bytes() const { return uint64_t{rows} * cols * size_of(type); }
};

/// The results of a forward pass. Lists are as in <tessera/spiking.h>; a layer without spikes has potentials
/// instead. The others are read by gradients, and empty where they are not needed.
struct SpikingResults {
  SpikingMatrix ids, num, surrogate, resets, potentials, currents, dropped;
};
SpikingResults results_of(const SpikingProblem& problem);

/// The shape of the results' gradients: one per entry of the lists, or per potential.
SpikingMatrix upstream_of(const SpikingProblem& problem);

/// The operand "control", whose columns the codelet's spiking_control names.
SpikingMatrix control_of(const SpikingProblem& problem);

/// Parameters in the form that kernels read; forward pass and gradients may share them.
struct SpikingPrepared {
  Operand weight;
  Operand dynamics;
};

/// The results of a layer.
struct SpikingLayerOperands {
  std::optional<Operand> ids = {}, num = {}, surrogate = {}, resets = {}, potentials = {}, currents = {};
  std::optional<Operand> dropped = {};  ///< forward
  /// For gradients: the gradient of the layer's result; in a stack, if the loss depends on it directly.
  std::optional<Operand> upstream = {};
};

/// Operands of a program; operands that a problem does not have are absent.
struct SpikingOperands : SpikingLayerOperands {
  Operand in_ids = {}, in_num = {};
  std::vector<Operand> parameters = {};                          ///< as parameters_of() lists them
  std::optional<Operand> control = {}, gradient_threshold = {};  ///< forward
  std::optional<Operand> din = {};                               ///< gradients
  std::vector<Operand> parameter_gradients = {};  ///< for gradients; without decays and thresholds if these
                                                  ///< are not learned
  std::optional<SpikingPrepared> prepared = {};   ///< prepared form of `parameters`, if it was made before
};

/// Adds steps that convert parameters to the form that kernels read.
SpikingPrepared prepare_spiking(const Builder& builder, const SpikingProblem& problem,
                                const std::vector<Operand>& parameters, std::vector<program::StepId>& steps);

/// Adds the layer, or its gradients. Throws UsageError for operands of another type or shape.
program::StepId build_spiking(const Builder& builder, const SpikingProblem& problem, const SpikingPlan& plan,
                              const SpikingOperands& operands);

}  // namespace tessera::ops
