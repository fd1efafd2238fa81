#include "cli/train_run.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/train_display.h"
#include "cli/train_output.h"
#include "io/atomic_file.h"
#include "ranks/agreement.h"
#include "report/axis.h"

namespace tessera::cli {
namespace {

/// Samples per second of training, without evaluation.
double rate_of(const TrainingRunRequest& run, const report::TrainingReport& report) {
  return run.batch / report.phases[0].step.seconds;
}

std::string json_of_estimate(const TrainingRunRequest& run, const Trainer& trainer,
                             const report::TrainingReport& report) {
  nlohmann::ordered_json all = json_of(run.options, run.samples, trainer, report, 0);
  all[fmt::format("{}_per_second", run.samples)] = rate_of(run, report);
  return json({all}, {}, run.command);
}

std::string text_of_estimate(const TrainingRunRequest& run, const report::TrainingReport& report) {
  return heading(report, run.batch) + estimate(report) +
         fmt::format("{} {} per second of training\n", report::value_text(rate_of(run, report)),
                     run.samples) +
         printed(run.options, report);
}

int show_estimate(const TrainingRunRequest& run, const Trainer& trainer,
                  const report::TrainingReport& report) {
  const RunOptions& r = run.options;
  fmt::print("{}", r.json ? json_of_estimate(run, trainer, report) : text_of_estimate(run, report));
  const bool written = write_or_complain([&] {
    if (!r.report.empty()) io::write_text(r.report, page_of(report));
  });
  const int status = complain_of_overflow(report);
  return written ? status : 1;
}

int train(const TrainingRunRequest& run, Trainer& trainer, report::TrainingReport& report) {
  const RunOptions& r = run.options;
  // The others cannot begin anew if one rank has a checkpoint.
  if (ranks::is_any(run.ranks, continues(r))) trainer.resume(r.checkpoint, r.allow_different_bits);
  const uint64_t first = trainer.step(), steps = report.phases[0].steps;
  if (!r.json)
    fmt::print("{}{}\nepoch      loss  accuracy  validation loss  validation accuracy      time\n",
               heading(report, run.batch), printed(r, report));
  std::fflush(stdout);
  const Interruption interruption;
  TrainDisplay display(!r.json, first, steps);
  report.result = trainer.train({.checkpoint = r.checkpoint, .progress = [&](const TrainingProgress& now) {
                                   display.show(now);
                                   return Interruption::pending() == 0;
                                 }});
  display.clear();
  fmt::print("{}", r.json ? json({json_of(r, run.samples, trainer, report, first)}, {}, run.command)
                          : summary(report));
  const bool finished = write_or_complain([&] {
    if (run.finish) run.finish();
  });
  const bool written = write_or_complain([&] {
    ranks::do_once(run.ranks, [&] {
      if (!r.report.empty()) io::write_text(r.report, page_of(report));
    });
  });
  if (report.result->finished) return finished && written ? 0 : 1;
  complain(stopped_text(r, report.result->step, steps));
  const int last_signal = Interruption::pending();
  return 128 + (last_signal != 0 ? last_signal : SIGTERM);  // another rank may have had it
}

}  // namespace

int run_training(const TrainingRunRequest& run, Trainer& trainer, report::TrainingReport& report) {
  return run.options.estimate ? show_estimate(run, trainer, report) : train(run, trainer, report);
}

}  // namespace tessera::cli
