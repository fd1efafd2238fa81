#include <fmt/format.h>
#include <tessera/error.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "io/weights.h"
#include "machine/machine.h"
#include "report/table.h"
#include "sparse/inspect.h"

namespace tessera::cli {

Command add_inspect_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("inspect", "What a weight file holds, and how to run it here");
  (void)command;
  return [] { return 0; };
}

}  // namespace tessera::cli
