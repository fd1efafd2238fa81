// `tessera reproduce` for papers that are lists of sections.
#pragma once

#include "cli/commands.h"
#include "studies/paper/study.h"

namespace tessera::cli {

/// Adds the command of a paper to `reproduce`, with the options of this paper alone; the result runs it.
Command add_paper_command(CLI::App& reproduce, const studies::Paper& paper,
                          void (*add_further)(CLI::App& command, studies::Request& request) = nullptr);

}  // namespace tessera::cli
