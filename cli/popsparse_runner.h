// The cells of `tessera reproduce popsparse`, run as `tessera spmm` runs its cases.
#pragma once

#include <vector>

#include "studies/paper/cells.h"
#include "studies/popsparse/sweep.h"

namespace tessera::cli {

/// Throws UsageError for invalid cells, before any of them runs.
void check(const studies::popsparse::Sweep& sweep, const studies::popsparse::Request& request);

/// The cells of a sweep, those of one operand as a series. The request must outlive them.
std::vector<studies::Task> tasks_of(const studies::popsparse::Sweep& sweep,
                                    const studies::popsparse::Request& request, machine::Kind kind);

}  // namespace tessera::cli
