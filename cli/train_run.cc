#include "cli/train_run.h"

#include <fmt/format.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/output.h"
#include "io/atomic_file.h"
#include "report/axis.h"

namespace tessera::cli {
namespace {

std::string output_of(const SampleTask& task, const Trainer& trainer, const report::TrainingReport& report,
                      uint64_t first) {
  const RunOptions& r = task.options;
  const double rate = task.batch / report.phases[0].step.seconds;  // without evaluation
  if (r.json) {
    nlohmann::ordered_json all = json_of(r, task.samples, trainer, report, first);
    if (r.estimate) all[fmt::format("{}_per_second", task.samples)] = rate;
    return json({all}, {}, task.command);
  }
  if (!r.estimate) return summary(report);
  return heading(report, task.batch) + estimate(report) +
         fmt::format("{} {} per second of training\n", report::value_text(rate), task.samples) +
         printed(r, report);
}

}  // namespace

int show_result(const TrainingTask& task, uint64_t first, uint64_t step, uint64_t steps) {
  fmt::print("{}", task.output(first));
  const bool finished = write_or_complain([&] {
    if (task.finish) task.finish();
  });
  const bool written = write_or_complain([&] { ranks::do_once(task.ranks, task.write_files); });
  if (step == steps) return finished && written ? 0 : 1;
  complain(stopped_text(task.options, fmt::format("after step {} of {}", step, steps)));
  const int last_signal = Interruption::pending();
  return 128 + (last_signal != 0 ? last_signal : SIGTERM);  // another rank may have received the signal
}

int show_estimate(const TrainingTask& task, const report::CostReport& report) {
  fmt::print("{}", task.output(0));
  const bool written = write_or_complain(task.write_files);
  const int status = complain_of_overflow(report);
  return written ? status : 1;
}

int run_training(const SampleTask& task, Trainer& trainer, report::TrainingReport& report) {
  const RunOptions& r = task.options;
  return run_training(
      {.options = r,
       .ranks = task.ranks,
       .heading = heading(report, task.batch) + printed(r, report) +
                  "\nepoch      loss  accuracy  validation loss  validation accuracy      time\n",
       .output = [&](uint64_t first) { return output_of(task, trainer, report, first); },
       .write_files =
           [&] {
             if (!r.report.empty()) io::write_text(r.report, page_of(report));
           },
       .finish = task.finish},
      trainer, report, report.result);
}

}  // namespace tessera::cli
