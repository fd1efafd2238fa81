// Programs that the tool runs.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

/// Runs a program, which is looked for in PATH unless its name has a slash, with these arguments and without
/// a shell. Returns what it wrote to stdout; stderr is the tool's. Throws Error if it cannot be started or
/// fails. SIGINT and SIGTERM end the program too, before they have their effect on the tool.
std::string output_of(std::vector<std::string> command);

}  // namespace tessera::cli
