// Runs the cells of a paper.
#pragma once

#include <string>
#include <vector>

#include "studies/paper/store.h"

namespace tessera::studies {

/// A cell with the name of its section, if it has one.
struct Task {
  std::string section;
  Cell cell;
};

/// The cells of the sections that a request asks for, and of the sections that these read.
std::vector<Task> tasks_of(const Paper& paper, const Request& request, const machine::Machine& machine);

/// Number of cells that a store lacks.
size_t missing(const std::vector<Task>& tasks, const Store& store);

/// Receives the progress of a run, from one thread at a time.
class Watcher {
 public:
  virtual ~Watcher() = default;
  /// `done` cells are finished, `fraction` of the work, and `next` begins.
  virtual void progress(size_t done, const std::string& next, double fraction) = 0;
  virtual void complain(const std::string& message) = 0;
};

/// Runs the cells that the store lacks: several at once if they are modelled, one after another if they are
/// measured. Cells that fail are reported and not stored; returns their number. Throws what writing the store
/// throws.
size_t run(const Request& request, const machine::Machine& machine, const std::vector<Task>& tasks,
           Store& store, Watcher& watcher);

}  // namespace tessera::studies
