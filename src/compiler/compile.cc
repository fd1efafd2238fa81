#include "compiler/compile.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <initializer_list>
#include <utility>

#include "base/record_pass.h"
#include "compiler/passes.h"

namespace tessera::compiler {

namespace {

using CompilerPass = std::string (*)(Compilation&);

/// Runs passes and records the results and time of each.
void run(Compilation& c, std::initializer_list<std::pair<const char*, CompilerPass>> passes) {
  for (const auto& each : passes)
    base::record_pass(c.executable->passes, each.first, [&] { return each.second(c); });
}

std::string verify(Compilation& c) {
  program::verify(c.program, c.machine.tiles, c.machine.has_shared_space());
  return std::to_string(c.program.variables().size()) + " variables";
}

std::shared_ptr<Executable> begin(std::shared_ptr<const program::Program> program,
                                  const machine::Machine& machine) {
  auto executable = std::make_shared<Executable>();
  executable->program = std::move(program);
  executable->machine = machine_of_replica(*executable->program, machine);
  return executable;
}

/// What an estimate compiles of a program that its caller owns.
struct Estimated {
  Estimated(const program::Program& program, const machine::Machine& machine)
      : executable(begin({std::shared_ptr<const program::Program>(), &program}, machine)),
        compilation(program, executable->machine, Kept::none) {
    find_runtime_control(*executable);
    compilation.executable = executable;
    run(compilation, {{"exchange", plan_exchange}, {"cycles", count_cycles}});
  }

  const std::shared_ptr<Executable> executable;
  Compilation compilation;
};

}  // namespace

machine::Machine machine_of_replica(const program::Program& program, const machine::Machine& machine) {
  const uint32_t replicas = program.replicas();
  const bool is_host = machine.kind == machine::Kind::host && replicas > 0;
  if (replicas == 1 || is_host) return machine;
  const uint32_t chips = machine.chip_count();
  if (replicas == 0 || chips % replicas != 0 || machine.tiles != chips * machine.chip_tiles)
    throw UsageError(
        fmt::format("{} replicas of a program need a machine of whole chips, equally many for each; "
                    "'{}' has {} chip{} of {} tiles in all",
                    replicas, machine.name, chips, chips == 1 ? "" : "s", machine.tiles));
  const uint32_t each = chips / replicas;
  const uint32_t row = machine.topology == machine::Topology::ladder  ? 2
                       : machine.topology == machine::Topology::torus ? machine.torus_width
                                                                      : 1;
  if (each > 1 && each % row != 0)
    throw UsageError(
        fmt::format("a replica of {} chips of '{}' is not whole rows of {} chips, which its links "
                    "make the same for all replicas",
                    each, machine.name, row));
  return machine.part(0, machine.tiles / replicas);
}

std::shared_ptr<const Executable> compile(program::Program program, const machine::Machine& machine) {
  return compile(std::make_shared<const program::Program>(std::move(program)), machine);
}

std::shared_ptr<const Executable> compile(std::shared_ptr<const program::Program> program,
                                          const machine::Machine& machine) {
  const std::shared_ptr<Executable> executable = begin(std::move(program), machine);
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

std::shared_ptr<const Executable> compile_for_costs(std::shared_ptr<const program::Program> program,
                                                    const machine::Machine& machine) {
  const std::shared_ptr<Executable> executable = begin(std::move(program), machine);
  find_runtime_control(*executable);
  Compilation c(*executable->program, executable->machine,
                executable->cycles_vary ? Kept::metadata : Kept::none);
  c.executable = executable;
  run(c,
      {{"exchange", plan_exchange}, {"liveness", find_liveness}, {"code", count_code}, {"placement", place}});
  if (executable->cycles_vary) run(c, {{"resolve", resolve}});
  run(c, {{"account", account}});
  return executable;
}

Estimate estimate(const program::Program& program, const machine::Machine& machine,
                  const TripCounts& trip_counts, double most_cycles) {
  Estimated estimated(program, machine);
  Estimate counted;
  counted.run = cycles_of_run(*estimated.executable, trip_counts);
  counted.cycles = counted.run.cycles;
  counted.has_memory = !(counted.cycles.total() > most_cycles);
  if (!counted.has_memory) return counted;
  run(estimated.compilation,
      {{"liveness", find_liveness}, {"code", count_code}, {"placement", place}, {"bytes", count_bytes}});
  counted.memory = std::move(estimated.executable->memory);
  return counted;
}

program::PhaseTimes estimate_cycles(const program::Program& program, const machine::Machine& machine) {
  return cycles_of_run(*Estimated(program, machine).executable).cycles;
}

}  // namespace tessera::compiler
