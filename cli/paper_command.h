// `tessera reproduce` of papers that are lists of sections.
#pragma once

#include "cli/commands.h"
#include "studies/paper/study.h"

namespace tessera::cli {

/// Adds the command below `reproduce`, with options that other papers do not have; runs it once it is parsed.
Command add_paper_command(CLI::App& reproduce, const studies::Paper& paper,
                          void (*add_further)(CLI::App& command, studies::Request& request) = nullptr);

}  // namespace tessera::cli
