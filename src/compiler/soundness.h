// Proofs that an executable is sound.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <string>

#include "compiler/pieces.h"

namespace tessera::compiler {

/// Holds an executable against its program: lists are as long as they must be, every place that a vertex
/// touches lies in its tile's memory or the shared one, and inside it, and what does not lie there is
/// exchanged to it and back. Throws Error naming the first fault. An executable from a file that passes
/// touches no memory but its own.
void check_executable(const Executable& executable);

/// Proves that pieces alive at one time do not share bytes. Throws Error naming two that do.
void check_overlaps(const Compilation& c);

[[noreturn]] inline void fail(const std::string& what) { throw Error("unsound executable: " + what); }

inline std::string name_of(program::TileId tile) {
  return tile == program::kShared ? std::string("the shared space") : fmt::format("tile {}", tile);
}

}  // namespace tessera::compiler
