// The cells of `tessera reproduce popsparse`, run as `tessera spmm` runs its cases.
#pragma once

#include <vector>

#include "studies/paper/cells.h"
#include "studies/popsparse/sweep.h"

namespace tessera::studies::popsparse {

/// Throws UsageError for invalid cells, before any of them runs.
void check(const Sweep& sweep, const Request& request);

/// The cells of a sweep, those of one operand as a series. The request must outlive them.
std::vector<Task> tasks_of(const Sweep& sweep, const Request& request, machine::Kind kind);

}  // namespace tessera::studies::popsparse
