// Compiles tile programs to executables.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "compiler/executable.h"

namespace tessera::compiler {

/// Compiles a program for a machine. The passes, in order: verify, exchange, liveness, code, placement,
/// control, resolve, check, account. A program that overflows a tile compiles too, with memory.fits() false.
/// Throws Error if the program is unsound.
std::shared_ptr<const Executable> compile(program::Program program, const machine::Machine& machine);

/// What an estimate must be told where control flow and costs depend on metadata.
struct TripCounts {
  /// Times that the body of a `While` runs each time that the loop is reached.
  std::optional<uint32_t> of_loops;
  /// Integers of a variable's box that costs may read, row-major, when the body has run `trip` times, the
  /// present one included; null where costs are not to read them. Constants are known without.
  std::function<const std::byte*(program::VariableId, const program::Box&, uint32_t trip)> contents;
};

/// What the account of a compiled program says, without the executable.
struct Estimate {
  program::PhaseTimes cycles;  ///< of one run
  MemoryReport memory;
};

/// Compiles as far as sizes and cycles need. The program must be sound, which compiling it proves. Throws
/// Error where control flow depends on what `trip_counts` does not say: an `If`, or a `While` without its
/// count.
Estimate estimate(const program::Program& program, const machine::Machine& machine,
                  const TripCounts& trip_counts = {});

}  // namespace tessera::compiler
