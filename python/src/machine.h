// Machines in Python.
#pragma once

#include <tessera/machine.h>

#include <string>
#include <vector>

#include "studies/spmm/case.h"

namespace tessera::python {

/// A machine, and the arguments by which it was requested.
struct ChosenMachine {
  Machine machine;
  std::string name;
  studies::spmm::Settings settings;
};

/// The columns of a tile's memory: purposes, and what is of none.
std::vector<std::string> memory_columns();

}  // namespace tessera::python
