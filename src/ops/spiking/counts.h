// Counts how often each neuron fired in a sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/builder.h"
#include "ops/plan.h"
#include "ops/spiking/spiking.h"

namespace tessera::ops {

struct SpikeCountsProblem {
  uint32_t steps = 0;
  uint32_t batch = 0;
  uint32_t capacity = 0;  ///< capacity of the lists per step and sample
  uint32_t neurons = 0;
  bool gradient = false;  ///< computes the gradient of each entry of the lists, instead of the counts
  double expected = 0;    ///< mean of listed neurons per step and sample, for planning
};

/// Partitions the batch over the tiles of the machine.
Plan<BatchPartition> plan(const SpikeCountsProblem& problem, const machine::Machine& machine);
inline Plan<BatchPartition> plan(const Builder& builder, const SpikeCountsProblem& problem,
                                 const std::vector<Operand>& operands) {
  static_cast<void>(operands);
  return plan(problem, builder.machine());
}

/// Operands ids, num and the counts [batch, neurons]; for the gradient ids, num, the counts' gradient, and
/// the lists' gradient [steps, batch · capacity]. Throws UsageError for operands of another type or shape.
program::StepId build(const Builder& builder, const SpikeCountsProblem& problem,
                      const Plan<BatchPartition>& plan, const std::vector<Operand>& operands);

/// Mapping of a matrix with `cols` columns per sample and `rows` rows: each sample on the tile of its part.
std::vector<program::MappedBox> map_samples(const BatchPartition& partition, uint32_t rows, uint32_t cols);

}  // namespace tessera::ops
