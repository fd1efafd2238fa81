// Compiles tile programs to executables.
#pragma once

#include <memory>

#include "compiler/executable.h"

namespace tessera::compiler {

/// Compiles a program for a machine. The passes, in order: verify, exchange, liveness, code, placement,
/// control, resolve, check, account. A program that overflows a tile compiles too, with memory.fits() false.
/// Throws Error if the program is unsound.
std::shared_ptr<const Executable> compile(program::Program program, const machine::Machine& machine);

}  // namespace tessera::compiler
