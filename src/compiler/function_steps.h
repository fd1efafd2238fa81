// The steps of functions, and when these use what calls pass.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::compiler {

/// The steps of a function, and the bounds between them at which its calls touch their operands. What a
/// function reads is alive from its start until its last step that touches the argument; what it writes is
/// alive from the first of these steps on. What it only writes is alive until it ends.
struct FunctionSteps {
  struct Use {
    uint32_t argument = 0;
    bool reads = false;
    bool writes = false;
  };
  struct Bound {
    uint32_t step = 0;  ///< the number of steps before it
    std::vector<Use> uses;
  };

  std::vector<program::StepId> steps;  ///< the body's steps, with the steps of sequences in their place
  std::vector<Bound> bounds;           ///< ascending

  /// Calls at_bound(position in `bounds`) and at_step(step), in the order in which a call reaches them.
  template <class AtBound, class AtStep>
  void walk(const AtBound& at_bound, const AtStep& at_step) const {
    uint32_t bound = 0;
    for (uint32_t step = 0; step <= steps.size(); ++step) {
      if (bound < bounds.size() && bounds[bound].step == step) at_bound(bound++);
      if (step < steps.size()) at_step(steps[step]);
    }
  }
};

/// By function; empty for functions without arguments.
std::vector<FunctionSteps> steps_of_functions(const program::Program& program);

}  // namespace tessera::compiler
