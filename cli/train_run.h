// One training by the tool, from its checkpoint to its report.
#pragma once

#include <fmt/format.h>
#include <tessera/communicator.h>
#include <tessera/training.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "cli/interrupt.h"
#include "cli/train_display.h"
#include "cli/train_options.h"
#include "cli/train_output.h"
#include "ranks/agreement.h"
#include "report/training_report.h"

namespace tessera::cli {

/// The parts of a training that depend on its kind.
struct TrainingTask {
  const RunOptions& options;
  Communicator* ranks = nullptr;  ///< ranks that train together, the first of which writes files; null: none
  std::string heading;            ///< above the rows of a training
  /// The result of a training since that step, or the estimate, as text or JSON.
  std::function<std::string(uint64_t first)> output;
  std::function<void()> write_files;
  std::function<void()> begin = {};   ///< unless a checkpoint is resumed
  std::function<void()> finish = {};  ///< after training, before files are written, on all ranks
};

/// Shows a training's result, and writes its files; returns the exit status.
int show_result(const TrainingTask& task, uint64_t first, uint64_t step, uint64_t steps);
int show_estimate(const TrainingTask& task, const report::CostReport& report);

/// Trains, or only shows the estimate if the options ask for that; returns the exit status. `result` is part
/// of the report.
template <class AnyTrainer, class Result>
int run_training(const TrainingTask& task, AnyTrainer& trainer, const report::CostReport& report,
                 std::optional<Result>& result) {
  const RunOptions& r = task.options;
  if (r.estimate) return show_estimate(task, report);
  // No rank can begin from the start if one has a checkpoint.
  if (ranks::is_any(task.ranks, continues(r)))
    trainer.resume(r.checkpoint, r.allow_different_bits);
  else if (task.begin)
    task.begin();
  const uint64_t first = trainer.step();
  if (!r.json) fmt::print("{}", task.heading);
  std::fflush(stdout);
  const Interruption interruption;
  result = train_shown(trainer, r.checkpoint, !r.json);
  return show_result(task, first, result->step, trainer.steps());
}

/// A training with images or recordings.
struct SampleTask {
  const RunOptions& options;
  const char* command = "train";   ///< command of the tool
  const char* samples = "images";  ///< name of the data
  uint32_t batch = 1;
  std::function<void()> finish = {};
  Communicator* ranks = nullptr;
};

int run_training(const SampleTask& task, Trainer& trainer, report::TrainingReport& report);

}  // namespace tessera::cli
