// Common parts of the plans of all operations: the candidates, and the cost of each.
#pragma once

#include <tessera/error.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "program/codelet.h"

namespace tessera::ops {

/// No program of the machine can hold the problem, however it is partitioned: it does not fit.
class TooLarge : public UsageError {
 public:
  using UsageError::UsageError;
};

/// One way to partition an operation over the tiles of a machine.
struct PlanCandidate {
  std::string partition;             ///< for people: "2 × 1 tiles, 64 × 512 per tile"
  program::PhaseTimes seconds;       ///< predicted
  uint64_t max_tile_bytes = 0;       ///< of the fullest tile; on a host, of the shared space
  std::string rejected;              ///< the reason; empty if it is feasible
  uint64_t exchange_code_bytes = 0;  ///< of the tile with most of it

  double total() const { return seconds.total(); }
};

/// Knobs of a partition that the planner must use, by name.
using ForcedKnobs = std::map<std::string, int64_t>;

/// The result of a planner: the chosen partition, its predicted cost, and all candidates.
template <class Partition>
struct Plan {
  Partition partition;
  PlanCandidate chosen;
  std::vector<PlanCandidate> candidates;
};

/// Index of the fastest feasible candidate, the first among equals; if none is feasible, of the smallest: not
/// fitting is a valid result, which the account of the whole program reports. Rejects the other feasible ones
/// for being slower.
size_t choose_fastest(std::vector<PlanCandidate>& candidates);

/// The fastest of some partitions, of each of which evaluate() gives the candidate.
template <class Partition, class Evaluate>
Plan<Partition> fastest_of(std::vector<Partition> partitions, const Evaluate& evaluate) {
  Plan<Partition> plan;
  for (const Partition& partition : partitions) plan.candidates.push_back(evaluate(partition));
  const size_t best = choose_fastest(plan.candidates);
  plan.partition = std::move(partitions[best]);
  plan.chosen = plan.candidates[best];
  return plan;
}

/// One line per candidate: its partition, seconds by phase, bytes, and why it was rejected.
std::string to_string(std::span<const PlanCandidate> candidates);

}  // namespace tessera::ops
