// Spiking layers over whole sequences, and their gradients: planned, and added to a tile program.
#pragma once

#include <tessera/spiking.h>
#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <string>
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
  uint32_t in_capacity = 0;     ///< room of the lists of inputs, per step and sample
  uint32_t capacity = 0;        ///< room of the lists of the layer; 0: for all neurons
  bool trains = true;           ///< whether gradients follow a forward pass
  bool learns_dynamics = true;  ///< whether there are gradients of decays and thresholds
  bool gradients = false;       ///< those of inputs and parameters, instead of the forward pass
  bool input_gradient = true;   ///< gradients: whether there are those of inputs
  uint32_t operation = 0;       ///< number of the stream of random numbers that decide what overflow drops
  /// Expected means per step and sample, for planning: spikes of the inputs, and listed neurons.
  double expected_inputs = 0;
  double expected_listed = 0;

  uint32_t room() const { return capacity == 0 ? layer.neurons : capacity; }
};

/// What lists of spikes have to fit.
struct SpikeListRoom {
  uint32_t batch = 0;
  uint32_t capacity = 0;  ///< entries of each list
  uint32_t neurons = 0;   ///< that they number from 0
};

/// Throws UsageError for lists of so many steps that have no room for what they say they hold, or name a
/// neuron that there is not: kernels trust them.
void check_lists(const uint16_t* ids, const uint32_t* num, uint64_t steps, const SpikeListRoom& room);

using SpikingPlan = Plan<BatchPartition>;

/// Partitions the batch, by the cost of the parts. Throws UsageError for impossible sizes, and for machines
/// other than hosts.
SpikingPlan plan_spiking(const SpikingProblem& problem, const machine::Machine& machine);

/// "2 parts; predicted 17 us"
std::string to_string(const SpikingPlan& plan);

/// A matrix that spiking layers leave for others; rows are steps.
struct SpikingMatrix {
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;

  bool empty() const { return rows == 0 || cols == 0; }
  uint64_t bytes() const { return uint64_t{rows} * cols * size_of(type); }
};

/// What a forward pass writes. Lists are those of <tessera/spiking.h>; a layer without spikes has potentials
/// in their stead. The others are what gradients read, as far as they do.
struct SpikingResults {
  SpikingMatrix ids, num, surrogate, resets, potentials, currents, dropped;
};
SpikingResults results_of(const SpikingProblem& problem);

/// The gradients of the results: one for each place of the lists, or for each potential.
SpikingMatrix upstream_of(const SpikingProblem& problem);

/// Columns of the operand "control" (u32, one row): what the codelet's spiking_control names.
uint32_t spiking_control_columns();

/// Parameters as kernels read them, which forward pass and gradients may share.
struct SpikingPrepared {
  Operand weight;
  Operand dynamics;
};

/// Operands in a program; those that a problem does not have are absent.
struct SpikingOperands {
  Operand in_ids, in_num;
  std::vector<Operand> parameters = {};                          ///< as parameters_of() lists them
  std::optional<Operand> control = {}, gradient_threshold = {};  ///< forward
  std::optional<Operand> ids = {}, num = {}, surrogate = {}, resets = {}, potentials = {}, currents = {};
  std::optional<Operand> dropped = {};             ///< forward
  std::optional<Operand> upstream = {}, din = {};  ///< gradients
  std::vector<Operand> parameter_gradients = {};   ///< gradients; without those of decays and thresholds
                                                   ///< if they do not learn
  std::optional<SpikingPrepared> prepared = {};    ///< of the same parameters
};

/// Adds steps that prepare parameters.
SpikingPrepared prepare_spiking(const Builder& builder, const SpikingProblem& problem,
                                const std::vector<Operand>& parameters, std::vector<program::StepId>& steps);

/// Adds the layer, or its gradients. Throws UsageError for operands of another type or shape.
program::StepId build_spiking(const Builder& builder, const SpikingProblem& problem, const SpikingPlan& plan,
                              const SpikingOperands& operands);

}  // namespace tessera::ops
