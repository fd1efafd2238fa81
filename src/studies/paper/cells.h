// Runs the cells of a paper, and keeps them.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "studies/common/result_file.h"
#include "studies/paper/study.h"

namespace tessera::studies {

/// A result with its section and cell as one JSON object.
nlohmann::ordered_json json_of(const std::string& section, const std::string& cell, const Result& result);

/// The finished cells of one machine, in a result file.
class Store {
 public:
  /// As ResultFile.
  Store(std::string file, const nlohmann::ordered_json& made_on);

  /// Null if there is none yet.
  const Result* find(std::string_view section, std::string_view cell) const;
  /// Appends a cell; thread-safe. Throws Error on failure.
  void add(const std::string& section, const std::string& cell, const Result& result);
  const std::string& file() const { return file_.name(); }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Result> results_;
  ResultFile file_;  // after what it fills
};

/// A cell with the name of its section, if it has one.
struct Task {
  std::string section;
  Cell cell;
};

/// The cells of the sections that a request asks for, and of those that they read.
std::vector<Task> tasks_of(const Paper& paper, const Request& request, const machine::Machine& machine);

/// Cells that a store lacks.
size_t missing(const std::vector<Task>& tasks, const Store& store);

/// Is told how far a run is, by one thread at a time.
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
