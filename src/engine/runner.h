// One run of an executable in the memory of an engine or a session.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "engine/dispatch_table.h"
#include "engine/run.h"
#include "engine/run_memory.h"
#include "engine/work_sharing.h"

namespace tessera::engine {

/// What a run needs to itself, and the next one takes over.
struct RunState {
  RunState(const compiler::Executable& executable, Contents contents) {
    for (uint32_t replica = 0; replica < executable.program->replicas(); ++replica)
      memories.emplace_back(executable, contents, replica);
  }

  /// For runs beside those in another state, whose variables of role state it has.
  RunState(const compiler::Executable& executable, const RunState& beside) {
    memories.emplace_back(executable, beside.memories.front());
  }

  std::deque<RunMemory> memories;  ///< by replica
  WorkSharing threads;
};

/// An executable, made ready for runs in any number of states.
class Runner {
 public:
  explicit Runner(std::shared_ptr<const compiler::Executable> executable)
      : executable_(std::move(executable)), table_(*executable_) {}

  const compiler::Executable& executable() const { return *executable_; }

  /// Throws Error, naming what fills the fullest tile, where the program does not fit its machine.
  void require_fit() const;

  /// Binds the caller's arrays, runs the program once, and on machines with private memories copies inputs to
  /// the tiles before and outputs back afterwards.
  Profile run(RunState& state, std::span<const Binding> bindings, const RunOptions& options) const;

  /// Runs a program of one thread once with each of several sets of arrays, as many at a time as there are
  /// states.
  void run_side_by_side(std::span<RunState* const> states, std::span<const std::vector<Binding>> runs) const;

  /// What a run takes, without its floating-point work: counted, or, where control flow or costs depend on
  /// integers or there is a trace, walked, with the integers of `present` as state.
  Profile dry_run(std::span<const Binding> bindings, const RunOptions& options,
                  const RunState* present = nullptr) const;

 private:
  std::shared_ptr<const compiler::Executable> executable_;
  DispatchTable table_;
};

/// What a run takes whose cycles do not vary, with these bindings checked.
Profile counted(const compiler::Executable& executable, std::span<const Binding> bindings);

}  // namespace tessera::engine
