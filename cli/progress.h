// A progress bar with the remaining time, on a terminal only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace tessera::cli {

/// Drawn on stderr when it is a terminal and the work takes more than a moment; erased at the end.
class Progress {
 public:
  explicit Progress(size_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows that `done` of the steps are done and `next` is under way.
  void show(size_t done, const std::string& next);
  /// The same where steps are of different length: `share` of the work is done, 0 to 1.
  void show(size_t done, const std::string& next, double share);
  /// Erases the bar, to let something else be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  size_t total_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
};

}  // namespace tessera::cli
