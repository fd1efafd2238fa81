#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/spiking_options.h"
#include "cli/train_request.h"
#include "cli/train_run.h"
#include "cli/train_sweep.h"
#include "cli/training.h"

namespace tessera::cli {
namespace {

int train_one(const TrainRequest& request, const TrainingData& data) {
  Trainer trainer = start(request, data);
  report::TrainingReport report = report_of(request, data, trainer);
  return run_training({.options = request,
                       .samples = name_of_samples(request),
                       .batch = request.settings.batch,
                       .finish =
                           [&] {
                             if (request.is_spiking) report.traces = trainer.traces(0);
                           }},
                      trainer, report);
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
      "train",
      "Train image classifiers, dense or sparse; spiking classifiers of recordings; a ResNet; or BERT");
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
  const Command bert = add_train_bert_command(command), resnet = add_train_resnet_command(command);
  return [request, bert, resnet, &command] {
    const std::vector<CLI::App*> networks = command.get_subcommands();
    if (networks.empty()) return run(*request, command);
    const bool is_bert = networks.front()->get_name() == "bert";
    for (const CLI::Option* option : command.get_options())
      if (option->count() != 0)
        throw UsageError(fmt::format("{} stands before {}; give the options of {} after it",
                                     option->get_name(), networks.front()->get_name(),
                                     is_bert ? "BERT" : "a ResNet"));
    return is_bert ? bert() : resnet();
  };
}

}  // namespace tessera::cli
