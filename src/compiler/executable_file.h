// Executables in files: compiled once, run for the same machine anywhere.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "compiler/executable.h"

namespace tessera::compiler {

/// Writes an executable, including constants, completely or not at all. Throws Error on failure.
void save(const Executable& executable, const std::string& file);

/// Finds codelets of this build by name, such as kernels::find_codelet; null for unknown names.
using FindCodelet = const program::Codelet* (*)(std::string_view name);

/// Reads an executable. `machine` must have the figures of the machine for which it was compiled. Throws
/// Error, which begins with the file's name, if the file is not an executable, is damaged, has another format
/// version, is for another machine, uses a codelet that this build lacks, or is unsound: nothing in it is
/// trusted before verification.
std::shared_ptr<const Executable> load(const std::string& file, const machine::Machine& machine,
                                       FindCodelet find);

}  // namespace tessera::compiler
