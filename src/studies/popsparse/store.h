// Finished cells of `tessera reproduce popsparse`, kept between runs.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "studies/popsparse/sweep.h"

namespace tessera::studies::popsparse {

/// A file of JSON lines: the first states what the results depend on, each other line is a cell. A cell is
/// one write at the end of the file, so an interrupted run loses no finished cell; an incomplete last line is
/// dropped.
class Store {
 public:
  /// Opens or creates `file`. `made_on` is what its cells depend on. Throws UsageError if the file states
  /// something else or is open in another run; Error if it cannot be read or written, or one of its lines is
  /// damaged.
  Store(std::string file, const nlohmann::ordered_json& made_on);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Null if there is none yet.
  const Result* find(const Cell& cell) const;

  /// Appends a cell; thread-safe. Throws Error on failure.
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

/// Converts a result to JSON and back. Throws nlohmann::json::exception or UsageError for JSON that is not a
/// result.
nlohmann::ordered_json json_of(const Result& result);
Result result_of(const nlohmann::ordered_json& json);

}  // namespace tessera::studies::popsparse
