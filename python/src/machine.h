// Machines as Python has them.
#pragma once

#include <tessera/machine.h>

#include <string>

#include "cli/spmm_case.h"

namespace tessera::python {

/// A machine, and how it was asked for.
struct ChosenMachine {
  Machine machine;
  std::string name;
  cli::Settings settings;
};

}  // namespace tessera::python
