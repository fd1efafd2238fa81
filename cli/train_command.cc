#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/train_output.h"
#include "cli/train_request.h"
#include "io/atomic_file.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  TrainRequest request;
  CommonOptions common;
};

/// The bar with loss and accuracy, and a row for each epoch.
class Display {
 public:
  Display(bool rows, uint64_t first_step, uint64_t steps)
      : rows_(rows), first_(first_step), bar_(steps - first_step) {}

  void show(const TrainingProgress& now) {
    if (now.finished != nullptr && rows_) {
      bar_.clear();
      fmt::print("{}", report::text_of(*now.finished));
      std::fflush(stdout);
    }
    constexpr std::chrono::milliseconds kPause{100};
    if (Clock::now() - shown_ < kPause) return;
    shown_ = Clock::now();
    bar_.show(now.step - first_,
              fmt::format("epoch {}, loss {:.4f}{}", now.epoch, now.loss,
                          now.accuracy ? fmt::format(", accuracy {:.1f} %", 100 * *now.accuracy) : ""));
  }
  void clear() { bar_.clear(); }

 private:
  bool rows_;
  uint64_t first_;
  Progress bar_;
  Clock::time_point shown_;
};

void resume(const TrainRequest& r, Trainer& trainer) {
  if (!r.resume) return;
  if (std::filesystem::exists(r.checkpoint))
    trainer.resume(r.checkpoint, r.allow_different_bits);
  else
    complain(fmt::format("{} does not exist yet: training starts anew", r.checkpoint));
}

int train(const TrainRequest& r, const Machine& machine, Trainer& trainer, report::TrainingReport& report) {
  resume(r, trainer);
  const uint64_t first = trainer.step();
  if (!r.json)
    fmt::print("{}\nepoch      loss  accuracy  validation loss  validation accuracy      time\n",
               heading(report, trainer));
  std::fflush(stdout);
  const Interruption interruption;
  Display display(!r.json, first, report.epochs * report.steps_per_epoch);
  report.result = trainer.train({.checkpoint = r.checkpoint, .progress = [&](const TrainingProgress& now) {
                                   display.show(now);
                                   return Interruption::pending() == 0;
                                 }});
  display.clear();
  fmt::print("{}", r.json ? json({json_of(r, machine, trainer, report, first)}, {}) : summary(report));
  if (!r.report.empty()) io::write_text(r.report, page_of(report));
  if (report.result->finished) return 0;
  complain(fmt::format(
      "interrupted after step {} of {}{}", report.result->step, report.epochs * report.steps_per_epoch,
      r.checkpoint.empty() ? ", without a checkpoint"
                           : fmt::format("; continue with --checkpoint {} --resume", r.checkpoint)));
  return 128 + Interruption::pending();
}

int show_estimate(const TrainRequest& r, const Machine& machine, const Trainer& trainer,
                  const report::TrainingReport& report) {
  fmt::print("{}", r.json ? json({json_of(r, machine, trainer, report, 0)}, {})
                          : heading(report, trainer) + estimate(report));
  if (!r.report.empty()) io::write_text(r.report, page_of(report));
  for (const model::RunCost* cost : {&report.step, &report.evaluation}) {
    if (cost->overflow.empty()) continue;
    complain(cost->overflow);
    return 1;
  }
  return 0;
}

/// Trains with consecutive seeds.
int train_seeds(TrainRequest r, const Machine& machine, const ImageSplit& images) {
  const Interruption interruption;
  const uint64_t first = r.settings.seed;
  std::vector<nlohmann::ordered_json> trainings;
  std::vector<double> accuracies;
  for (uint32_t i = 0; i < r.seeds; ++i) {
    r.settings.seed = first + i;
    Trainer trainer(r.settings, images, machine, r.threads);
    report::TrainingReport report = report_of(r, images, machine, trainer);
    if (i == 0 && !r.json) fmt::print("{}", heading(report, trainer));
    Display display(false, 0, report.epochs * report.steps_per_epoch);
    report.result = trainer.train({.progress = [&](const TrainingProgress& now) {
      display.show(now);
      return Interruption::pending() == 0;
    }});
    display.clear();
    if (!report.result->finished) {
      complain(fmt::format("interrupted while training with seed {}", r.settings.seed));
      return 128 + Interruption::pending();
    }
    accuracies.push_back(report.result->test_accuracy.value());
    trainings.push_back(json_of(r, machine, trainer, report, 0));
    if (!r.json) fmt::print("{}", summary_of_seed(report, r.settings.seed));
    std::fflush(stdout);
  }
  fmt::print("{}", r.json ? json(std::move(trainings), accuracies) : summary_of_seeds(accuracies));
  return 0;
}

int run(const Options& options, const CLI::App& command) {
  TrainRequest request = options.request;
  request.json = options.common.json;
  request.threads = options.common.threads;
  set_defaults(request, command);
  check(request, command);
  for (const std::string& file : {request.checkpoint, request.report})
    if (!file.empty()) io::require_writable(file);
  const Machine machine = machine_for(request);
  const ImageSplit images = images_for(request);
  if (request.seeds > 1) return train_seeds(request, machine, images);
  Trainer trainer(request.settings, images, machine, request.threads);
  report::TrainingReport report = report_of(request, images, machine, trainer);
  return request.estimate ? show_estimate(request, machine, trainer, report)
                          : train(request, machine, trainer, report);
}

}  // namespace

Command add_train_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("train", "Train dense or sparse classifiers of images");
  auto options = std::make_shared<Options>();
  add_train_options(command, options->request);
  add_common_options(command, options->common);
  command.footer(
      "\nExamples:\n"
      "  tessera train --data data --dataset cifar-10-grey --layers 1024,1024,10 --report dense.html\n"
      "  tessera train --data data --dataset mnist --kind dynamic --density 1/10 --schedule rigl\n"
      "  tessera train --data data --dataset cifar-10-grey --kind butterfly --seeds 5\n"
      "  tessera train --layers 1024,1024,10 --checkpoint run.safetensors --resume\n"
      "  tessera train --layers 1024,1024,10 --kind static --density 1/16 --machine bow --estimate");
  return [options, &command] { return run(*options, command); };
}

}  // namespace tessera::cli
