#include <tessera/communicator.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <variant>

#include "cli/commands.h"
#include "cli/ranks.h"
#include "cli/resnet_request.h"
#include "cli/train_run.h"
#include "cli/training.h"
#include "ranks/agreement.h"

namespace tessera::cli {
namespace {

template <class Images>
Trainer trainer_of(const ResnetRequest& r, const Images& images, const Machine& machine,
                   const std::shared_ptr<Communicator>& ranks) {
  if constexpr (!std::is_same_v<Images, ImageOutline>)
    if (!r.estimate) return Trainer(r.settings, images, machine, r.threads, ranks);
  return Trainer::for_estimates(r.settings, images, machine, r.threads);
}

int run(const ResnetRequest& r, const auto& images, const Machine& machine,
        const std::shared_ptr<Communicator>& ranks) {
  Trainer trainer = trainer_of(r, images, machine, ranks);
  report::TrainingReport report = report_of(r, network_of(r.settings), images.name, machine, trainer);
  return run_training({.options = r,
                       .command = "train resnet",
                       .batch = r.settings.batch,
                       .finish =
                           [&] {
                             if (report.result->finished && !r.save.empty()) trainer.save_parameters(r.save);
                           },
                       .ranks = ranks.get()},
                      trainer, report);
}

int run(const ResnetRequest& r, const std::shared_ptr<Communicator>& ranks) {
  const Machine machine = machine_for(r);  // before images, which take long
  std::variant<ImageSplit, ImageFolder, ImageOutline> found;
  ranks::do_on_each(ranks.get(), [&] { found = images_for(r); });
  return std::visit([&](const auto& images) { return run(r, images, machine, ranks); }, found);
}

/// Ranks that mpirun has started have a replica each, unless there are more.
int run(ResnetRequest request, const CLI::App& command) {
  const uint32_t started = started_ranks();
  if (started > 1 && command.count("--replicas") == 0) request.settings.replicas = started;
  check(request, command);
  if (started > 1 && request.estimate)
    throw UsageError("--estimate takes one process: run it without mpirun");
  std::shared_ptr<Communicator> ranks;
  if (started > 1) ranks = connect_ranks(request.ranks);
  return run_as_rank(ranks.get(), [&] { return run(request, ranks); });
}

}  // namespace

Command add_train_resnet_command(CLI::App& train) {
  CLI::App& command = *train.add_subcommand("resnet", "Train a ResNet, dense or block-sparse, on images");
  auto request = std::make_shared<ResnetRequest>();
  add_resnet_options(command, *request);
  add_common_options(command, *request);
  command.footer(
      "\nExamples:\n"
      "  tessera train resnet --data data --epochs 30 --save resnet-20.safetensors\n"
      "  tessera train resnet --data data --steps 64000 --lr-schedule step --lr-decay-at 0.5,0.75\n"
      "  tessera train resnet --data data --density 1/10 --block 16 --report sparse.html\n"
      "  tessera train resnet --data data --optimizer lars --lr 2 --warmup 500 --label-smoothing 0.1\n"
      "  tessera train resnet --depth 50 --dataset imagenet --batch 32 --label-smoothing 0.1\n"
      "  tessera train resnet --checkpoint run.safetensors --resume\n"
      "  tessera train resnet --depth 50 --batch 16 --numbers mlperf-v1 --machine gc200 --estimate\n"
      "  tessera train resnet --config mlperf-v1.0-resnet50-pod16 --estimate\n"
      "  mpirun -n 4 tessera train resnet --data data --norm-replicas 0");
  return [request, &command] { return run(*request, command); };
}

}  // namespace tessera::cli
