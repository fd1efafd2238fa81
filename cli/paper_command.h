// `tessera reproduce` of papers that are lists of sections.
#pragma once

#include "cli/commands.h"
#include "studies/paper/study.h"

namespace tessera::cli {

/// Adds the command below `reproduce`; runs it once it is parsed.
Command add_paper_command(CLI::App& reproduce, const studies::Paper& paper);

}  // namespace tessera::cli
