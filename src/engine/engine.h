// Runs executables on this computer's cores.
#pragma once

#include <memory>
#include <span>

#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

/// An executable ready to run. run() may be called from several threads at once: each call has
/// arenas of its own, and calls that use several threads take turns with the process's pool of them. State
/// begins each run with its initial contents and is forgotten afterwards; a Session keeps it.
class Engine {
 public:
  explicit Engine(std::shared_ptr<const compiler::Executable> executable);
  ~Engine();

  const compiler::Executable& executable() const;

  /// Runs the program once. Every external variable must be bound; in a dry run none needs to be, but
  /// integer inputs that are let it follow control flow and costs that depend on them. Throws Error where
  /// one is not, where the program does not fit its machine, or where memory for its arenas is lacking.
  Profile run(std::span<const Binding> bindings, const RunOptions& options = {}) const;

 private:
  struct Idle;

  std::unique_ptr<Idle> idle_;
};

}  // namespace tessera::engine
