// Splitting the samples of a batch over the threads of a host.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "machine/model/machine.h"
#include "ops/plan.h"
#include "ops/split.h"
#include "program/cycles.h"

namespace tessera::ops {

/// The first sample of each part, and the end.
struct BatchPartition {
  std::vector<uint32_t> sample_begin;

  uint32_t parts() const { return static_cast<uint32_t>(sample_begin.size() - 1); }
  /// Number of samples of the largest part.
  uint32_t most_samples() const {
    uint32_t most = 0;
    for (uint32_t i = 0; i < parts(); ++i) most = std::max(most, sample_begin[i + 1] - sample_begin[i]);
    return most;
  }
};

/// The candidate "2 parts", from the cycles of the largest part, the seconds for adding the parts' results,
/// and the scratch memory of a part.
inline PlanCandidate batch_candidate(const BatchPartition& partition, const machine::Machine& machine,
                                     program::PhaseTimes cycles, double reduction_seconds,
                                     uint64_t scratch_bytes) {
  cycles[program::Phase::sync] += program::sync_cycles(machine, partition.parts());
  program::PhaseTimes seconds = cycles.scaled(1 / machine.clock_hz);
  seconds[program::Phase::reduce] += reduction_seconds;
  return {fmt::format("{} part{}", partition.parts(), partition.parts() == 1 ? "" : "s"), seconds,
          scratch_bytes * partition.parts(), ""};
}

/// The fastest partition into 1, 2, 4, … parts of whole grains, up to one per tile, by the candidates that
/// evaluate(partition) returns.
template <class Evaluate>
Plan<BatchPartition> plan_batch(uint32_t batch, uint32_t grain, const machine::Machine& machine,
                                const Evaluate& evaluate) {
  std::vector<BatchPartition> partitions;
  uint32_t last = 0;
  for (uint32_t parts = 1; parts != last; last = parts, parts = std::min(2 * parts, machine.tiles)) {
    BatchPartition partition{split_evenly(batch, parts, grain)};
    if (partition.parts() != parts) break;
    partitions.push_back(std::move(partition));
  }
  return fastest_of(std::move(partitions), evaluate);
}

}  // namespace tessera::ops
