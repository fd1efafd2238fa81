// Compiles tile programs to executables.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "compiler/executable.h"
#include "compiler/step_watch.h"

namespace tessera::compiler {

/// Compiles a program for a machine. The passes, in order: verify, exchange, liveness, code, placement,
/// control, resolve, check, account. A program that overflows a tile compiles too, with memory.fits() false.
/// Throws Error if the program is unsound.
std::shared_ptr<const Executable> compile(program::Program program, const machine::Machine& machine);
std::shared_ptr<const Executable> compile(std::shared_ptr<const program::Program> program,
                                          const machine::Machine& machine);

/// Compiles a sound program only as far as cost reports and dry runs need it: without verify and check, and
/// without resolve unless cycles vary, so that the places of vertices and copies are not kept.
std::shared_ptr<const Executable> compile_for_costs(std::shared_ptr<const program::Program> program,
                                                    const machine::Machine& machine);

/// Information that an estimate needs if control flow and costs depend on metadata.
struct TripCounts {
  /// How often the body of a `While` runs each time the loop is reached.
  std::optional<uint32_t> of_loops;
  /// Integers of a variable's box that costs may read, row-major, during trip `trip` of the body; null if
  /// costs must not read them. Constants are always known.
  std::function<const std::byte*(program::VariableId, const program::Box&, uint32_t trip)> contents;
};

/// Costs of all executions of a compute set, copy set or collective in a run.
struct StepAccount {
  uint64_t times = 0;
  program::PhaseTimes cycles;
};

/// Cycles of one run.
struct RunAccount {
  program::PhaseTimes cycles;              ///< cycles of the chip that ends last
  std::vector<program::PhaseTimes> chips;  ///< by chip, if there are several
  std::vector<program::LinkLoad> links;    ///< links that carry data
  std::vector<StepAccount> sets;           ///< by ComputeSetId
  std::vector<StepAccount> copies;         ///< by CopySetId
  std::vector<StepAccount> collectives;    ///< by CollectiveId
};

/// The costs of a compiled program, without the executable.
struct Estimate {
  program::PhaseTimes cycles;  ///< cycles of one run
  MemoryReport memory;
  RunAccount run;          ///< the same cycles, by chip and link
  bool has_memory = true;  ///< false: `memory` was not counted
};

/// Compiles as far as needed for sizes and cycles. The program must be sound, which only a full compilation
/// proves. Throws Error if control flow depends on something that `trip_counts` does not provide: an `If`, or
/// a `While` without a count. If a run takes more than `most_cycles`, nothing gets an address, and no memory
/// is counted.
Estimate estimate(const program::Program& program, const machine::Machine& machine,
                  const TripCounts& trip_counts = {},
                  double most_cycles = std::numeric_limits<double>::infinity());

/// The cycles of an estimate alone, for which nothing gets an address.
program::PhaseTimes estimate_cycles(const program::Program& program, const machine::Machine& machine);

/// Cycles of one run of an executable. Walks a loop whose passes have equal costs only once. On several
/// chips, `watch` follows it, unless it is null.
RunAccount cycles_of_run(const Executable& executable, const TripCounts& trip_counts = {},
                         StepWatch* watch = nullptr);

}  // namespace tessera::compiler
