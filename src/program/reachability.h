// The parts of a program that it can execute.
#pragma once

#include <vector>

#include "program/program.h"

namespace tessera::program {

/// What is reachable from the main step, through calls too.
struct Reachability {
  std::vector<bool> steps;        ///< by StepId
  std::vector<bool> sets;         ///< by ComputeSetId
  std::vector<bool> copies;       ///< by CopySetId
  std::vector<bool> collectives;  ///< by CollectiveId
  std::vector<bool> controls;     ///< by VariableId: counters, conditions and run-time rows
};

Reachability reachability_of(const Program& program);

}  // namespace tessera::program
