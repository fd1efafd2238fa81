// Finished cells of `tessera reproduce popsparse`, kept from run to run.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/reproduce_popsparse.h"

namespace tessera::cli::popsparse {

/// A file of JSON lines: the first says what it was made on, each of the others holds a cell. A cell
/// is one write at the end of the file, so what ends a run loses no finished cell; a last line that was
/// torn is dropped.
class Store {
 public:
  /// Opens `file`, or makes it. `made_on` is what its cells depend on. Throws UsageError where the file
  /// says something else, or another run has it open; Error where it cannot be read or written, or a
  /// line of it is damaged.
  Store(std::string file, const nlohmann::ordered_json& made_on);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Null where there is none yet.
  const Result* find(const Cell& cell) const;

  /// Appends a cell, from any thread. Throws Error where that fails.
  void add(const Result& result);

  const std::string& file() const { return file_; }

 private:
  void read(const nlohmann::ordered_json& made_on);
  void read_line(std::string_view line, size_t number, const nlohmann::ordered_json& made_on);
  void write(const std::string& line);

  std::string file_;
  int descriptor_ = -1;
  mutable std::mutex mutex_;
  std::map<Cell, Result> results_;
};

/// A result as JSON, and back. Throws nlohmann::json::exception or UsageError where it is none.
nlohmann::ordered_json json_of(const Result& result);
Result result_of(const nlohmann::ordered_json& json);

}  // namespace tessera::cli::popsparse
