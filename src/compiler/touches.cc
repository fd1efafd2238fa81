#include "compiler/touches.h"

namespace tessera::compiler {

Touchers::Touchers(const program::Program& program)
    : first_copy_(static_cast<ToucherId>(program.compute_sets().size())),
      first_collective_(first_copy_ + static_cast<ToucherId>(program.copy_sets().size())),
      functions_(steps_of_functions(program)) {
  ToucherId next = first_collective_ + static_cast<ToucherId>(program.collectives().size());
  first_of_step_.reserve(program.steps().size() + 1);
  for (const program::Step& step : program.steps()) {
    first_of_step_.push_back(next);
    const auto* call = std::get_if<program::Call>(&step);
    next += call == nullptr ? 2U : static_cast<ToucherId>(functions_.at(call->function).bounds.size());
  }
  first_of_step_.push_back(next);
}

}  // namespace tessera::compiler
