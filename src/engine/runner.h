// One run of an executable in the memory of an engine or a session.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/communication_thread.h"
#include "engine/dispatch_table.h"
#include "engine/part_exchange.h"
#include "engine/pool.h"
#include "engine/rank_exchange.h"
#include "engine/run.h"
#include "engine/run_memory.h"
#include "engine/work_sharing.h"

namespace tessera::engine {

/// The data that a run needs exclusively, reused by the next run.
struct RunState {
  RunState(const compiler::Executable& executable, Contents contents)
      : RunState(executable, contents, {0, executable.program->replicas(), 1, 0}) {}
  /// For the variables in `here`, or all if it is empty.
  RunState(const compiler::Executable& executable, Contents contents, OwnReplicas of_process,
           const std::vector<bool>& here = {})
      : own(of_process) {
    for (uint32_t replica = 0; replica < own.count; ++replica)
      memories.emplace_back(executable, contents, replica, here);
  }

  /// For runs side by side with runs in another RunState, whose state variables it shares.
  RunState(const compiler::Executable& executable, const RunState& beside) : own(beside.own) {
    memories.emplace_back(executable, beside.memories.front());
  }

  OwnReplicas own;
  std::unique_ptr<RankExchange> ranks;      ///< null if this process has all of the program
  std::unique_ptr<PartExchange> parts;      ///< null if it has whole replicas
  std::unique_ptr<Pool> pool;               ///< null: the process's
  std::deque<RunMemory> memories;           ///< by replica, from the first own one
  std::vector<program::VariableId> lacked;  ///< in a dry run: state that only other ranks have
  std::vector<bool> begun;                  ///< by StepId: the steps that the last run reached
  WorkSharing threads;
  CommunicationThread collectives;  ///< runs the collectives of several ranks; uses the above
};

/// An executable, made ready for runs in any number of states.
class Runner {
 public:
  explicit Runner(std::shared_ptr<const compiler::Executable> executable)
      : executable_(std::move(executable)), table_(*executable_) {}

  const compiler::Executable& executable() const { return *executable_; }

  /// Binds the caller's arrays, runs the program once, and on machines with private memories copies inputs to
  /// the tiles before and outputs back afterwards.
  Profile run(RunState& state, std::span<const Binding> bindings, const RunOptions& options) const;

  /// The state that is written by the steps that the last run reached.
  std::vector<program::VariableId> state_in_writing(const RunState& state) const;

  /// Runs a program of one thread once with each of several sets of arrays, on one thread per state.
  void run_side_by_side(std::span<RunState* const> states, std::span<const std::vector<Binding>> runs) const;

  /// The profile of a run without its floating-point work: computed once if it need not be followed and there
  /// is no trace, otherwise by walking control flow with the integers of `present` as state.
  Profile dry_run(std::span<const Binding> bindings, const RunOptions& options,
                  const RunState* present = nullptr) const;

 private:
  Profile dry_run_of(const OwnReplicas& own, std::span<const Binding> bindings, const RunOptions& options,
                     const RunState* present) const;
  /// What a rank sends to others in a run with this profile, in the state `present`; null: the only one.
  uint64_t predicted_bytes(const Profile& profile, const RunState* present) const;

  std::shared_ptr<const compiler::Executable> executable_;
  DispatchTable table_;
};

/// Whether a dry run with these bindings has to follow the program, since its control flow or its costs
/// depend on integers that it knows. Checks the bindings.
bool has_to_follow(const compiler::Executable& executable, std::span<const Binding> bindings);

/// The profile of a dry run that need not be followed. Checks the bindings.
Profile counted(const compiler::Executable& executable, std::span<const Binding> bindings,
                compiler::StepWatch* watch = nullptr);

}  // namespace tessera::engine
