// Sums over replicas that begin as soon as what they sum is complete, and copies from streaming memory that
// begin early, beside the steps that follow.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "program/program.h"
#include "program/uses.h"

namespace tessera::graph {

/// Lets steps of `fetches`, which copy whole variables from streaming memory, begin right after the previous
/// fetch, beside the steps that follow it: but not before something that touches what they copy, nor beside
/// loops.
std::vector<program::StepId> fetched_ahead(program::Program& program, std::vector<program::StepId> steps,
                                           const std::set<program::StepId>& fetches);

/// Orders steps that are listed one after the other: `early` ones come as soon as nothing that they depend on
/// comes later, all others stay where they are. Results stay the same.
class StepOrder {
 public:
  explicit StepOrder(program::Program& program) : program_(program), uses_(program) {}

  /// Adds a step after those that have been added.
  void add(program::StepId step, bool early);
  /// The position in order of the last step so far that writes a variable; 0: none does. Early steps count as
  /// the step that they come after.
  size_t written(program::VariableId variable) const;
  /// The steps in order, with the steps that follow an early collective beside it, up to the first that
  /// touches what it exchanges, and with `fetches` ahead as by fetched_ahead().
  std::vector<program::StepId> in_order();
  std::vector<program::StepId> steps(const std::set<program::StepId>& fetches = {});

 private:
  struct Placed {
    program::StepId step = program::kNoStep;
    size_t after = 0;
    bool early = false;
    program::Uses uses = {};
  };

  void sort();
  std::vector<program::StepId> with_besides(size_t first, size_t last,
                                            const std::set<program::StepId>& fetches);
  bool touches(const Placed& placed, const program::Collective& collective) const;

  program::Program& program_;
  program::UsesOfSteps uses_;
  std::vector<Placed> placed_;
  std::map<program::VariableId, size_t> written_, touched_;
};

}  // namespace tessera::graph
