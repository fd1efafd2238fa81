// Runs the cells of `tessera reproduce popsparse`.
#pragma once

#include "cli/reproduce_popsparse.h"
#include "cli/reproduce_popsparse_store.h"

namespace tessera::cli::popsparse {

/// Throws UsageError for invalid cells, before any of them runs.
void check(const Request& request, const Sweep& sweep);

/// Runs the cells of a sweep that are missing in the store, several at once if they are modelled, one after
/// another if they are measured. Once an n does not fit, larger ones are skipped: they do not fit either.
/// Shows a progress bar; reports cells that fail, which are not stored. Returns how many failed. Throws what
/// opening and writing the store throws.
size_t run(const Request& request, const machine::Machine& machine, const Sweep& sweep, Store& store);

/// Number of cells of a sweep that are missing in a store.
size_t missing(const Sweep& sweep, const Store& store);

}  // namespace tessera::cli::popsparse
