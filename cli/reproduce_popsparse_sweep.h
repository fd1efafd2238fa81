// Runs the cells of `tessera reproduce popsparse`.
#pragma once

#include "cli/reproduce_popsparse.h"
#include "cli/reproduce_popsparse_store.h"

namespace tessera::cli::popsparse {

/// Throws UsageError for cells that make no sense, before any of them runs.
void check(const Request& request, const Sweep& sweep);

/// Runs the cells of a sweep that the store lacks, several at once where they are modelled, one after
/// another where they are measured. More columns than do not fit are not tried: they do not fit either.
/// Shows a bar of progress; complains of cells that fail, which are not stored. Returns how many failed.
/// Throws what opening and writing the store throws.
size_t run(const Request& request, const machine::Machine& machine, const Sweep& sweep, Store& store);

/// Cells of a sweep that a store lacks.
size_t missing(const Sweep& sweep, const Store& store);

}  // namespace tessera::cli::popsparse
