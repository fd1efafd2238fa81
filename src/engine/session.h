// What stays from run to run.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

class RunMemory;
class Runner;
struct RunState;

/// An executable with its state. Each session has memory of its own, so that several of one executable
/// may run at once. All functions may be called from several threads; those of one session take turns.
class Session {
 public:
  /// State has its initial contents. Throws Error where memory is lacking.
  explicit Session(std::shared_ptr<const compiler::Executable> executable);
  ~Session();

  const compiler::Executable& executable() const;

  /// Runs the program once, as Engine::run() does, on the state that the last run left. After a run that
  /// throws, state may be that of a part of the run. A dry run starts from the integers of the state and
  /// changes nothing.
  Profile run(std::span<const Binding> bindings, const RunOptions& options = {});

  /// A state variable to or from the caller's array, which must have its type and shape. Throws
  /// UsageError where there is none of that name or the array has another type or shape.
  void read(std::string_view name, const program::FieldView& to) const;
  void write(std::string_view name, const program::FieldView& from);

  /// State as it was at first.
  void reset();

  /// All state in a .safetensors file: one tensor of two dimensions for each variable, under its name. An
  /// existing file is replaced only by a complete one.
  void save(const std::string& path) const;

  /// State from such a file, bit by bit. Throws Error, and leaves the state as it is, where the file does
  /// not have exactly this program's state variables with their types and shapes.
  void load(const std::string& path);

 private:
  /// Throws Error where the program is too large for its machine to have any memory.
  const RunMemory& memory() const;
  program::VariableId find(std::string_view name, const program::FieldView& array) const;

  std::unique_ptr<const Runner> runner_;
  std::unique_ptr<RunState> state_;
  mutable std::mutex mutex_;
};

}  // namespace tessera::engine
