// Machines as Python has them.
#pragma once

#include <tessera/machine.h>

#include <string>

#include "studies/spmm/case.h"

namespace tessera::python {

/// A machine, and how it was asked for.
struct ChosenMachine {
  Machine machine;
  std::string name;
  studies::spmm::Settings settings;
};

}  // namespace tessera::python
