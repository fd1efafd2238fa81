// A progress bar with the estimated remaining time, on terminals only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace tessera::cli {

/// A bar on stderr, if that is a terminal and the work takes more than a moment; erased at the end.
class Progress {
 public:
  explicit Progress(size_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows that `done` steps are finished and `next` is running.
  void show(size_t done, const std::string& next);
  /// Shows that a fraction `share` of the work is done, 0 to 1, for steps of different length.
  void show(size_t done, const std::string& next, double share);
  /// Erases the bar so that something else can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  size_t total_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
};

}  // namespace tessera::cli
