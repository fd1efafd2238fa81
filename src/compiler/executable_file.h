// Executables in files: compiled once, run wherever the same machine is meant.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "compiler/executable.h"

namespace tessera::compiler {

/// Writes an executable, constants included, whole or not at all. Throws Error where that fails.
void save(const Executable& executable, const std::string& file);

/// Codelets of this build by name, such as those of kernels::find_codelet; null for a name of none.
using FindCodelet = const program::Codelet* (*)(std::string_view name);

/// Reads an executable back. `machine` is the one it was compiled for: its figures must be the same.
/// Throws Error, which begins with the file's name, where it is none, damaged, of another version of the
/// format, of another machine, runs a codelet that this build lacks, or is unsound: nothing in it is
/// trusted before it is verified.
std::shared_ptr<const Executable> load(const std::string& file, const machine::Machine& machine,
                                       FindCodelet find);

}  // namespace tessera::compiler
