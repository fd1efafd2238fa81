// One run of an executable in the memory of an engine or a session.
#pragma once

#include <span>

#include "engine/run.h"
#include "engine/run_memory.h"

namespace tessera::engine {

/// A dry run reads memory only where control flow or costs depend on it.
bool needs_memory(const compiler::Executable& executable, const RunOptions& options);

/// Throws Error, naming what fills the fullest tile, where a program does not fit its machine.
void require_fit(const compiler::Executable& executable);

/// Binds the caller's arrays, runs the program once, and on machines with private memories takes inputs
/// to the tiles before and outputs back afterwards.
Profile run_in(const compiler::Executable& executable, RunMemory& memory, std::span<const Binding> bindings,
               const RunOptions& options);

}  // namespace tessera::engine
