#include "compiler/compile.h"

#include <chrono>
#include <initializer_list>
#include <utility>

#include "compiler/passes.h"

namespace tessera::compiler {

namespace {

using Pass = std::string (*)(Compilation&);

/// Runs passes and records the results and time of each.
void run(Compilation& c, std::initializer_list<std::pair<const char*, Pass>> passes) {
  for (const auto& [name, pass] : passes) {
    const auto start = std::chrono::steady_clock::now();
    std::string did = pass(c);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    c.executable->passes.push_back({name, std::move(did), took.count()});
  }
}

std::string verify(Compilation& c) {
  program::verify(c.program, c.machine.tiles, c.machine.has_shared_space());
  return std::to_string(c.program.variables().size()) + " variables";
}

}  // namespace

std::shared_ptr<const Executable> compile(program::Program program, const machine::Machine& machine) {
  auto executable = std::make_shared<Executable>();
  executable->program = std::make_shared<const program::Program>(std::move(program));
  executable->machine = machine;
  Compilation c(*executable->program, executable->machine);
  c.executable = executable;
  run(c, {{"verify", verify},
          {"exchange", plan_exchange},
          {"liveness", find_liveness},
          {"code", count_code},
          {"placement", place},
          {"control", find_control},
          {"resolve", resolve},
          {"check", check},
          {"account", account}});
  return executable;
}

Estimate estimate(const program::Program& program, const machine::Machine& machine,
                  const TripCounts& trip_counts) {
  Compilation c(program, machine, true);
  c.executable->program = {std::shared_ptr<const program::Program>(), &program};  // owned by the caller
  c.executable->machine = machine;
  run(c, {{"exchange", plan_exchange},
          {"liveness", find_liveness},
          {"code", count_code},
          {"placement", place},
          {"control", find_control},
          {"account", account}});
  return {cycles_of_run(c, trip_counts), std::move(c.executable->memory)};
}

}  // namespace tessera::compiler
