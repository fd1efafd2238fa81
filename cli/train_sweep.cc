#include "cli/train_sweep.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/train_display.h"
#include "cli/train_output.h"
#include "io/atomic_file.h"
#include "report/training_sweep.h"

namespace tessera::cli {
namespace {

using report::SweepRun;

std::string name_of(const TrainRequest& one) {
  return fmt::format("batch {}, seed {}", one.settings.batch, one.settings.seed);
}

class Sweep {
 public:
  Sweep(const TrainRequest& request, const TrainingData& data) : request_(request), data_(data) {}

  /// Trains once; returns whether the training finished.
  bool train(const TrainRequest& one) try {
    Trainer trainer = start(one, data_);
    SweepRun run{one.settings.batch, one.settings.seed, report_of(one, data_, trainer)};
    if (runs_.empty() && !one.json) fmt::print("{}", heading(run.report, one.settings.batch));
    if (one.resume && std::filesystem::exists(one.checkpoint))
      trainer.resume(one.checkpoint, one.allow_different_bits);
    const uint64_t first = trainer.step();
    run.report.result = train_shown(trainer, one.checkpoint, false, name_of(one) + ", ");
    json_.push_back(json_of(one, name_of_samples(one), trainer, run.report, first));
    if (!run.report.result->finished) return false;
    if (!one.json) fmt::print("{}", summary_of_run(run));
    std::fflush(stdout);
    runs_.push_back(std::move(run));
    return true;
  } catch (const UsageError&) {
    throw;
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", name_of(one), e.what()));
  }

  /// Prints all trainings as JSON, including an interrupted one.
  void show_json() { fmt::print("{}", json(std::move(json_), points_of(runs_))); }
  /// Prints the summary, and returns whether the report could be written.
  bool show() {
    if (request_.json)
      show_json();
    else
      fmt::print("{}", summary_of(points_of(runs_)));
    return write_or_complain([&] {
      if (!request_.report.empty()) io::write_text(request_.report, page_of(runs_));
    });
  }

 private:
  const TrainRequest& request_;
  const TrainingData& data_;
  std::vector<SweepRun> runs_;
  std::vector<nlohmann::ordered_json> json_;
};

}  // namespace

int train_sweep(const TrainRequest& request, const TrainingData& data) {
  const std::vector<TrainRequest> trainings = trainings_of(request);
  for (const TrainRequest& one : trainings) check(one, data);
  const Interruption interruption;
  Sweep sweep(request, data);
  for (const TrainRequest& one : trainings) {
    if (sweep.train(one)) continue;
    if (request.json) sweep.show_json();
    complain(stopped_text(request, "while training with " + name_of(one)));
    return 128 + Interruption::pending();
  }
  return sweep.show() ? 0 : 1;
}

}  // namespace tessera::cli
