// Control flow as a graph, with the lifetimes of storage in it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/lifetime.h"
#include "compiler/touches.h"

namespace tessera::compiler {

/// The graph of positions that may follow each other, with calls expanded. The check derives lifetimes from
/// it, so that it need not trust the lifetimes that placement used.
class ControlGraph {
 public:
  explicit ControlGraph(const program::Program& program);

  uint32_t positions() const { return static_cast<uint32_t>(next_.size()); }
  const Touchers& touchers() const { return touchers_; }
  /// Positions of a toucher, ascending.
  const std::vector<uint32_t>& positions_of(ToucherId toucher) const { return positions_of_[toucher]; }
  /// The positions at which storage with this chain of touches is touched, or on some path holds a value that
  /// was written before and is read later.
  Lifetime lifetime_of(const TouchChains& chains, TouchChain chain);

 private:
  using Positions = std::vector<uint32_t>;

  // Each function takes the positions from which control may come, and returns the positions at which it may
  // be afterwards.
  Positions walk(program::StepId id, Positions from);
  /// What runs beside a copy or collective.
  Positions walk_beside(program::StepId id, program::StepId beside, Positions from);
  Positions walk_branch(program::StepId id, const program::If& branch, Positions from);
  Positions walk_loop(program::StepId id, const program::While& loop, Positions from);
  Positions walk_repeat(program::StepId id, const program::Repeat& repeat, Positions from);
  Positions walk_call(program::StepId id, const program::Call& call, Positions from);

  /// Adds a position; a position without toucher joins paths.
  uint32_t add(const Positions& from);
  uint32_t touching(ToucherId toucher, const Positions& from);
  void link(const Positions& from, uint32_t to);
  Positions read_after(const Positions& reads);
  Positions alive_within(const Positions& writes);

  const program::Program& program_;
  Touchers touchers_;
  uint32_t steps_ = 0;
  std::vector<Positions> next_;
  std::vector<Positions> previous_;
  std::vector<Positions> positions_of_;  ///< by toucher
  // By position; all 0 between calls.
  std::vector<uint8_t> overwrites_;
  std::vector<uint8_t> read_later_;  ///< read after the position, without being overwritten before
  std::vector<uint8_t> alive_;       ///< read later, and written at or before the position
};

}  // namespace tessera::compiler
