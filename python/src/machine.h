// Machines in Python.
#pragma once

#include <tessera/machine.h>

#include <string>

#include "studies/spmm/case.h"

namespace tessera::python {

/// A machine, and the arguments by which it was requested.
struct ChosenMachine {
  Machine machine;
  std::string name;
  studies::spmm::Settings settings;
};

}  // namespace tessera::python
