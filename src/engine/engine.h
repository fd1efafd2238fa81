// Runs executables on this computer's cores.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

class RunMemory;

/// An executable ready to run. run() may be called from several threads at once: each call has
/// arenas of its own, and calls take turns with the process's pool of threads. State begins each run
/// with its initial contents and is forgotten afterwards; a Session keeps it.
class Engine {
 public:
  explicit Engine(std::shared_ptr<const compiler::Executable> executable);
  ~Engine();

  const compiler::Executable& executable() const { return *executable_; }

  /// Runs the program once. Every external variable must be bound; in a dry run none needs to be, but
  /// integer inputs that are let it follow control flow and costs that depend on them. Throws Error where
  /// one is not, where the program does not fit its machine, or where memory for its arenas is lacking.
  Profile run(std::span<const Binding> bindings, const RunOptions& options = {}) const;

 private:
  std::unique_ptr<RunMemory> take_memory(bool allocate) const;
  void give_back(std::unique_ptr<RunMemory> memory) const;

  std::shared_ptr<const compiler::Executable> executable_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<RunMemory>> idle_;
};

}  // namespace tessera::engine
