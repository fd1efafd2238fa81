// Executables in files: compiled once, run for the same machine anywhere.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/executable.h"

namespace tessera::compiler {

/// Writes an executable, including constants, completely or not at all. Throws Error on failure.
void save(const Executable& executable, const std::string& file);
/// What save() writes, for files that hold more.
std::vector<std::byte> to_bytes(const Executable& executable);

/// Finds codelets of this build by name, such as kernels::find_codelet; null for unknown names.
using FindCodelet = const program::Codelet* (*)(std::string_view name);

/// Reads an executable. `machine` must have the figures of the machine for which it was compiled. Throws
/// Error, which begins with the file's name, if the file is not an executable, is damaged, has another format
/// version, is for another machine, uses a codelet that this build lacks, or is unsound: nothing in it is
/// trusted before verification.
std::shared_ptr<const Executable> load(const std::string& file, const machine::Machine& machine,
                                       FindCodelet find);
/// The executable in these bytes, for a program that the caller has: the program in the bytes is not read,
/// but must equal it, bit for bit. Throws Error as load() does, without a name, and for the executable of
/// another program.
std::shared_ptr<const Executable> from_bytes(std::span<const std::byte> bytes,
                                             std::shared_ptr<const program::Program> program,
                                             const machine::Machine& machine);

}  // namespace tessera::compiler
