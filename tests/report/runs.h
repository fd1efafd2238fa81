// Runs of random programs, for tests of reports.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "support/bound_arrays.h"
#include "support/random_program.h"
#include "support/reference_interpreter.h"
#include "support/toy_machine.h"

namespace tessera::testing {

struct Run {
  std::shared_ptr<const compiler::Executable> executable;
  engine::Profile profile;
  std::vector<engine::TraceEvent> trace;
};

/// A random program, run on two threads with zeros for inputs.
inline Run random_run(uint64_t seed, const machine::Machine& machine) {
  const program::Program program = random_program(seed, {machine.tiles, machine.has_shared_space()});
  const FlatVariables zeros = flat_variables(program);
  BoundArrays arrays(program, zeros);
  Run run;
  run.executable = compiler::compile(program, machine);
  run.profile = engine::Engine(run.executable).run(arrays.bindings(), {.threads = 2, .trace = &run.trace});
  return run;
}

}  // namespace tessera::testing
