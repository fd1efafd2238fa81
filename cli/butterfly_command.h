// `tessera reproduce butterfly`.
#pragma once

#include "cli/commands.h"

namespace tessera::cli::butterfly {

/// Adds the command below `reproduce`; runs it once it is parsed.
Command add_command(CLI::App& reproduce);

}  // namespace tessera::cli::butterfly
