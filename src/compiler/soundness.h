// Proofs that an executable is sound.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <string>

#include "compiler/executable.h"

namespace tessera::compiler {

/// Holds an executable against its program: lists are as long as they must be, every place that a vertex
/// touches lies in its tile's memory or the shared one, and inside it, and what does not lie there is
/// exchanged to it and back, and what is alive at one time shares no bytes. Throws Error naming the first
/// fault. An executable from a file that passes touches no memory but its own.
void check_executable(const Executable& executable);

[[noreturn]] inline void fail(const std::string& what) { throw Error("unsound executable: " + what); }

inline std::string name_of(program::TileId tile) {
  return tile == program::kShared ? std::string("the shared space") : fmt::format("tile {}", tile);
}

}  // namespace tessera::compiler
