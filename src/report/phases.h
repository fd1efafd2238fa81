// Phases in charts and traces: names, colours, order.
#pragma once

#include <vector>

#include "report/chart.h"
#include "report/run_summary.h"

namespace tessera::report {

/// One category per phase, in the order of program::Phase.
std::vector<Category> phase_categories();
size_t phase_colour(program::Phase phase);

/// The longest phase of a step that is neither sync nor control, if any.
program::Phase main_phase(const std::vector<PhaseSpan>& phases);
program::Phase main_phase(const program::PhaseTimes& seconds);

/// The longest phase in which tiles compute; compute if there is none.
program::Phase computing_phase(const std::vector<PhaseSpan>& phases);

/// Seconds until the first phase in which tiles compute.
double before_computing(const std::vector<PhaseSpan>& phases);

}  // namespace tessera::report
