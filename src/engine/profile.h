// Profiles before a run, and without one.
#pragma once

#include "compiler/executable.h"
#include "engine/run.h"

namespace tessera::engine {

/// A profile with the steps of a program, by name, that have not run yet.
Profile empty_profile(const program::Program& program);

/// For an executable whose cycles do not vary: enters the cycles of a run, and the numbers of executions of
/// its steps, into a profile; and the profile of a dry run.
void enter_cycles(const compiler::Executable& executable, Profile& profile,
                  compiler::StepWatch* watch = nullptr);
Profile profile_of_cycles(const compiler::Executable& executable, compiler::StepWatch* watch = nullptr);

}  // namespace tessera::engine
