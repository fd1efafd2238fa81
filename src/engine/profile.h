// Profiles before a run, and without one.
#pragma once

#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

/// The steps of a program, by name, which have not run.
Profile empty_profile(const program::Program& program);

/// Of an executable whose cycles do not vary: the cycles of a run, and how often its steps run, entered in a
/// profile, and as that of a dry run.
void enter_cycles(const compiler::Executable& executable, Profile& profile);
Profile profile_of_cycles(const compiler::Executable& executable);

}  // namespace tessera::engine
