// The search of `tessera train bert --plan` for a way to divide a step among chips.
#pragma once

#include <tessera/machine.h>
#include <tessera/pretraining.h>

#include "cli/bert_request.h"

namespace CLI {
class App;
}

namespace tessera::cli {

/// Throws UsageError for options of a training that is run or estimated.
void check_plan_options(const CLI::App& command);

/// Plans, and prints the frontier, the choice, and the command that trains with it. Returns 1 if nothing
/// fits.
int show_plan(const BertRequest& request, const Machine& machine, const TextSplit& text,
              const CLI::App& command);

}  // namespace tessera::cli
