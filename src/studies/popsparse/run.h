// Runs the cells of `tessera reproduce popsparse`.
#pragma once

#include <functional>
#include <memory>

#include "studies/common/run.h"
#include "studies/popsparse/store.h"
#include "studies/popsparse/sweep.h"

namespace tessera::studies::popsparse {

/// Runs cells of one operand, which share its matrix.
class CellRunner {
 public:
  virtual ~CellRunner() = default;
  /// Throws UsageError for an invalid cell.
  virtual void check(const Cell& cell) = 0;
  /// With `estimate` the cell is only accounted; with `verify` its result is compared with float64. Throws
  /// Error, or std::bad_alloc, where it fails.
  virtual Result run(const Cell& cell, bool estimate, bool verify) = 0;
};
using MakeRunner = std::function<std::unique_ptr<CellRunner>(const Operand&)>;

/// Throws UsageError for invalid cells, before any of them runs.
void check(const Sweep& sweep, const MakeRunner& make_runner);

/// Runs the cells of a sweep that the store lacks: several at once if they are modelled, one after another if
/// they are measured. Numbers of columns above one that does not fit are skipped. Cells that fail are
/// reported and not stored; returns their number. Throws what opening and writing the store throws.
size_t run(const Request& request, const machine::Machine& machine, const Sweep& sweep, Store& store,
           const MakeRunner& make_runner, Watcher& watcher);

/// Cells of a sweep that a store lacks.
size_t missing(const Sweep& sweep, const Store& store);

}  // namespace tessera::studies::popsparse
