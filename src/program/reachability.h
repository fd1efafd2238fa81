// What a program can come to run.
#pragma once

#include <vector>

#include "program/program.h"

namespace tessera::program {

/// What the main step reaches, calls expanded.
struct Reachability {
  std::vector<bool> sets;      ///< by ComputeSetId
  std::vector<bool> copies;    ///< by CopySetId
  std::vector<bool> controls;  ///< by VariableId: counters, conditions and run-time rows
};

Reachability reachability_of(const Program& program);

}  // namespace tessera::program
