// The display of `tessera train` during training.
#pragma once

#include <tessera/pretraining.h>
#include <tessera/training.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/progress.h"

namespace tessera::cli {

/// Shows a bar with loss and accuracy, and a row per epoch or evaluation.
class TrainDisplay {
 public:
  /// `name` precedes the text of the bar.
  TrainDisplay(bool rows, uint64_t first_step, uint64_t steps, std::string name = "")
      : rows_(rows), first_(first_step), name_(std::move(name)), bar_(steps - first_step) {}

  void show(const TrainingProgress& now);
  void show(const PretrainingProgress& now);
  void clear() { bar_.clear(); }

 private:
  void show_row(const std::string& row);
  void show_bar(uint64_t step, const std::string& text);

  bool rows_;
  uint64_t first_;
  std::string name_;
  Progress bar_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace tessera::cli
