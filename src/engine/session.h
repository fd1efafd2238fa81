// State that persists from run to run.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

class RunMemory;
class Runner;
struct RunState;

/// An executable with its state, of which each replica has its own: what is written goes to all of them, what
/// is read comes from the first. Each session has its own memory, so several of one executable may run at
/// once. All functions are thread-safe; calls to one session take turns.
class Session {
 public:
  /// State has its initial contents. Throws Error if memory is lacking.
  explicit Session(std::shared_ptr<const compiler::Executable> executable);
  ~Session();

  const compiler::Executable& executable() const;

  /// Runs the program once, like Engine::run(), on the state left by the last run. After a run that throws,
  /// state may be partially updated. A dry run starts from the integers of the state and changes nothing.
  Profile run(std::span<const Binding> bindings, const RunOptions& options = {});

  /// Runs the program once with each of several sets of arrays, on up to `threads` threads side by side. It
  /// has to be one for a host with one thread that leaves its state as it is. Throws Error if memory is
  /// lacking.
  void run_side_by_side(std::span<const std::vector<Binding>> runs, uint32_t threads);

  /// Copies a state variable to or from the caller's array, which must have its type and shape. Throws
  /// UsageError if there is none of that name or the array has another type or shape.
  void read(std::string_view name, const program::FieldView& to) const;
  void write(std::string_view name, const program::FieldView& from);

  /// The memory of a state variable on a host, row by row, which other programs may be given as an array
  /// while this session does not run. Throws UsageError as read() does, and on machines with tiles.
  program::FieldView memory_of(std::string_view name) const;

  /// Resets state to its initial contents.
  void reset();

  /// Saves all state in a .safetensors file: one two-dimensional tensor per variable, under its name. An
  /// existing file is only replaced by a complete one.
  void save(const std::string& path) const;

  /// Loads state from such a file, bit by bit. Throws Error, and leaves the state unchanged, if the file does
  /// not have exactly this program's state variables with their types and shapes.
  void load(const std::string& path);

 private:
  /// Throws Error if the program is too large for its machine to have memory.
  const std::deque<RunMemory>& memories() const;
  const RunMemory& memory() const;  ///< of the first replica
  program::VariableId find(std::string_view name) const;
  program::VariableId find(std::string_view name, const program::FieldView& array) const;

  std::unique_ptr<const Runner> runner_;
  std::unique_ptr<RunState> state_;
  std::deque<RunState> beside_;  ///< of further threads that run side by side
  mutable std::mutex mutex_;
};

}  // namespace tessera::engine
