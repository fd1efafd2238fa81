// Finished cells of `tessera reproduce popsparse`, kept between runs.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "studies/common/result_file.h"
#include "studies/popsparse/sweep.h"

namespace tessera::studies::popsparse {

/// The cells of a result file.
class Store {
 public:
  /// As ResultFile.
  Store(std::string file, const nlohmann::ordered_json& made_on);

  /// Null if there is none yet.
  const Result* find(const Cell& cell) const;

  /// Appends a cell; thread-safe. Throws Error on failure.
  void add(const Result& result);

  const std::string& file() const { return file_.name(); }

 private:
  mutable std::mutex mutex_;
  std::map<Cell, Result> results_;
  ResultFile file_;  // after what it fills
};

/// Converts a result to JSON and back. Throws nlohmann::json::exception or UsageError for JSON that is not a
/// result.
nlohmann::ordered_json json_of(const Result& result);
Result result_of(const nlohmann::ordered_json& json);

}  // namespace tessera::studies::popsparse
