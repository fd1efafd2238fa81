// Finished cells of a machine, kept between runs.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "studies/paper/study.h"

namespace tessera::studies {

/// A result with its section and cell as one JSON object.
nlohmann::ordered_json json_of(const std::string& section, const std::string& cell, const Result& result);

/// A file of JSON lines: the first states what the results depend on, each other line is a result. A result
/// is one write at the end of the file, so that an interrupted run loses no finished result; an incomplete
/// last line is dropped.
class Store {
 public:
  /// Opens or creates `file` and reads its results. `made_on` is what the results depend on. Throws
  /// UsageError if the file states something else or is open in another run; Error if it cannot be read or
  /// written, or one of its lines is damaged.
  Store(std::string file, const nlohmann::ordered_json& made_on);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// The result of a cell; null if there is none yet.
  const Result* find(std::string_view section, std::string_view cell) const;
  /// Appends a cell; thread-safe. Throws Error on failure.
  void add(const std::string& section, const std::string& cell, const Result& result);
  const std::string& file() const { return file_; }

 private:
  void read(const nlohmann::ordered_json& made_on);
  void read_line(std::string_view line, size_t number, const nlohmann::ordered_json& made_on);
  void write(const std::string& line);

  std::string file_;
  int descriptor_ = -1;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Result> results_;
};

}  // namespace tessera::studies
