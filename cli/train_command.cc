#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/spiking_options.h"
#include "cli/train_display.h"
#include "cli/train_output.h"
#include "cli/train_request.h"
#include "cli/train_sweep.h"
#include "cli/training.h"
#include "io/atomic_file.h"

namespace tessera::cli {
namespace {

int train(const TrainRequest& r, Trainer& trainer, report::TrainingReport& report) {
  if (continues(r)) trainer.resume(r.checkpoint, r.allow_different_bits);
  const uint64_t first = trainer.step(), steps = report.phases[0].steps;
  if (!r.json)
    fmt::print("{}{}\nepoch      loss  accuracy  validation loss  validation accuracy      time\n",
               heading(report, r.settings.batch), printed(r, report));
  std::fflush(stdout);
  const Interruption interruption;
  TrainDisplay display(!r.json, first, steps);
  report.result = trainer.train({.checkpoint = r.checkpoint, .progress = [&](const TrainingProgress& now) {
                                   display.show(now);
                                   return Interruption::pending() == 0;
                                 }});
  display.clear();
  fmt::print("{}", r.json ? json({json_of(r, trainer, report, first)}, {}) : summary(report));
  const bool written = write_or_complain([&] {
    if (r.is_spiking) report.traces = trainer.traces(0);
    if (!r.report.empty()) io::write_text(r.report, page_of(report));
  });
  if (report.result->finished) return written ? 0 : 1;
  complain(stopped_text(r, report.result->step, steps));
  return 128 + Interruption::pending();
}

int show_estimate(const TrainRequest& r, const Trainer& trainer, const report::TrainingReport& report) {
  fmt::print("{}", r.json ? json({json_of(r, trainer, report, 0)}, {})
                          : heading(report, r.settings.batch) + estimate(report) + printed(r, report));
  const bool written = write_or_complain([&] {
    if (!r.report.empty()) io::write_text(r.report, page_of(report));
  });
  const int status = complain_of_overflow(report);
  return written ? status : 1;
}

int train_one(const TrainRequest& request, const TrainingData& data) {
  Trainer trainer = start(request, data);
  report::TrainingReport report = report_of(request, data, trainer);
  return request.estimate ? show_estimate(request, trainer, report) : train(request, trainer, report);
}

int run(TrainRequest request, const CLI::App& command) {
  set_defaults(request, command);
  check(request, command);
  check_files(request);
  const Machine machine = machine_for(request);  // before data, which take long
  const TrainingData data = request.is_spiking ? TrainingData{recordings_for(request), machine}
                                               : TrainingData{images_for(request), machine};
  return is_sweep(request) ? train_sweep(request, data) : train_one(request, data);
}

}  // namespace

Command add_train_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "train", "Train dense or sparse classifiers of images, spiking ones of recordings, or BERT");
  auto request = std::make_shared<TrainRequest>();
  add_train_options(command, *request);
  add_common_options(command, *request);
  command.footer(
      "\nExamples:\n"
      "  tessera train --data data --dataset cifar-10-grey --layers 1024,1024,10 --report dense.html\n"
      "  tessera train --data data --dataset mnist --kind dynamic --density 1/10 --schedule rigl\n"
      "  tessera train --data data --dataset cifar-10-grey --kind butterfly --seeds 5\n"
      "  tessera train --data data --dataset cifar-10-grey --recipe paper --batch 25,50,100 --seeds 3\n"
      "  tessera train --layers 1024,1024,10 --checkpoint run.safetensors --resume\n"
      "  tessera train --layers 1024,1024,10 --kind static --density 1/16 --machine bow --estimate\n"
      "  tessera train --kind spiking --dataset randman --layers 20,128,10 --report spikes.html");
  const Command bert = add_train_bert_command(command);
  return [request, bert, &command] {
    if (!command.got_subcommand("bert")) return run(*request, command);
    for (const CLI::Option* option : command.get_options())
      if (option->count() != 0)
        throw UsageError(
            fmt::format("{} stands before bert; give the options of BERT after it", option->get_name()));
    return bert();
  };
}

}  // namespace tessera::cli
