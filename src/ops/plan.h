// Common parts of all operations' plans: candidates and their costs.
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

/// The problem is too large for any program of the machine, however it is partitioned.
class TooLarge : public UsageError {
 public:
  using UsageError::UsageError;
};

/// One way to partition an operation over the tiles of a machine.
struct PlanCandidate {
  std::string partition;             ///< for people: "2 × 1 tiles, 64 × 512 per tile"
  program::PhaseTimes seconds;       ///< predicted
  uint64_t max_tile_bytes = 0;       ///< bytes of the fullest tile; on a host, of the shared space
  std::string rejected;              ///< why it was rejected; empty if it is feasible
  uint64_t exchange_code_bytes = 0;  ///< bytes of exchange code of the tile with most of it

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

/// "17 us, slower than 12 us"
std::string slower_than(const PlanCandidate& candidate, double seconds);

/// Index of the fastest feasible candidate, the first among equals; if no candidate is feasible, of the
/// smallest: not fitting is a valid result, which the cost report of the whole program states. Marks the
/// other feasible candidates as rejected for being slower.
size_t choose_fastest(std::vector<PlanCandidate>& candidates);

/// The fastest of several partitions, by the candidates that evaluate(partition) returns.
template <class Partition, class Evaluate>
Plan<Partition> fastest_of(std::vector<Partition> partitions, const Evaluate& evaluate) {
  Plan<Partition> plan;
  for (const Partition& partition : partitions) plan.candidates.push_back(evaluate(partition));
  const size_t best = choose_fastest(plan.candidates);
  plan.partition = std::move(partitions[best]);
  plan.chosen = plan.candidates[best];
  return plan;
}

/// "2 parts; predicted 17 us"
std::string to_string(const PlanCandidate& chosen);
template <class Partition>
std::string to_string(const Plan<Partition>& plan) {
  return to_string(plan.chosen);
}

/// One line per candidate: its partition, seconds by phase, bytes, and why it was rejected.
std::string to_string(std::span<const PlanCandidate> candidates);

}  // namespace tessera::ops
