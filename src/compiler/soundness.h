// Proofs that an executable is sound.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <string>

#include "compiler/executable.h"

namespace tessera::compiler {

/// Checks an executable against its program: lists have the right lengths, every place that a vertex accesses
/// is inside its tile's memory or the shared memory, and data on other tiles is exchanged to it and back.
/// Throws Error naming the first fault. An executable from a file that passes accesses no memory but its own.
void check_executable(const Executable& executable);

[[noreturn]] inline void fail(const std::string& what) { throw Error("unsound executable: " + what); }

inline std::string name_of(program::TileId space) {
  if (space == program::kShared) return "the shared space";
  return space < program::kStreaming ? fmt::format("tile {}", space)
                                     : fmt::format("streaming memory {}", space - program::kStreaming);
}

}  // namespace tessera::compiler
