// Runs executables on the host's cores.
#pragma once

#include <memory>
#include <span>

#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

/// Throws Error, naming the contents of the fullest tile, if the program does not fit its machine.
void require_fit(const compiler::Executable& executable);

/// A dry run of an executable, which may be compiled for its costs alone.
Profile dry_run(const std::shared_ptr<const compiler::Executable>& executable,
                std::span<const Binding> bindings = {}, compiler::StepWatch* watch = nullptr);

/// An executable ready to run. run() may be called from several threads at once: each call has its own
/// arenas, and calls take turns with the process's thread pool. State has its initial contents at the
/// beginning of each run and is discarded afterwards; a Session keeps it.
class Engine {
 public:
  explicit Engine(std::shared_ptr<const compiler::Executable> executable);
  ~Engine();

  const compiler::Executable& executable() const;

  /// Runs the program once. Every external variable must be bound; a dry run needs none, but with bound
  /// integer inputs it follows control flow and costs that depend on them. Throws Error if a binding is
  /// missing, if the program does not fit its machine, or if there is not enough memory for its arenas.
  Profile run(std::span<const Binding> bindings, const RunOptions& options = {}) const;

 private:
  struct Idle;

  std::unique_ptr<Idle> idle_;
};

}  // namespace tessera::engine
