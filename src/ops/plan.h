// What the plans of all operations have in common: the cuts that were weighed, and what each costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "program/codelet.h"

namespace tessera::ops {

/// One way to cut an operation over the tiles of a machine.
struct PlanCandidate {
  std::string partition;        ///< for people: "2 × 1 tiles, 64 × 512 a tile"
  program::PhaseTimes seconds;  ///< predicted
  uint64_t max_tile_bytes = 0;  ///< of the fullest tile; on a host, of the shared space
  std::string rejected;         ///< why not; empty where it is feasible

  double total() const { return seconds.total(); }
};

/// Knobs of a partition that the planner must use, by name.
using ForcedKnobs = std::map<std::string, int64_t>;

/// What a planner gives: the partition that it has chosen, what that is predicted to cost, and all that
/// were weighed.
template <class Partition>
struct Plan {
  Partition partition;
  PlanCandidate chosen;
  std::vector<PlanCandidate> candidates;
};

/// Index of the fastest feasible candidate, the first among equals. Rejects the other feasible ones
/// for being slower. Throws Error with every candidate's reason where none is feasible.
size_t choose_fastest(std::vector<PlanCandidate>& candidates);

/// One line a candidate: its cut, seconds by phase, bytes, and why it was rejected.
std::string to_string(std::span<const PlanCandidate> candidates);

}  // namespace tessera::ops
