// The display of `tessera train` during training.
#pragma once

#include <tessera/pretraining.h>
#include <tessera/training.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "cli/interrupt.h"
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

/// Trains to the end, or until a signal interrupts it, and shows that.
template <class AnyTrainer>
auto train_shown(AnyTrainer& trainer, const std::string& checkpoint, bool rows, std::string name = "") {
  TrainDisplay display(rows, trainer.step(), trainer.steps(), std::move(name));
  auto result = trainer.train({.checkpoint = checkpoint, .progress = [&](const auto& now) {
                                 display.show(now);
                                 return Interruption::pending() == 0;
                               }});
  display.clear();
  return result;
}

}  // namespace tessera::cli
