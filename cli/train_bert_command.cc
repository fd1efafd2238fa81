#include <tessera/communicator.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/bert_plan.h"
#include "cli/bert_report.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "cli/train_output.h"
#include "cli/train_run.h"
#include "io/atomic_file.h"
#include "ranks/agreement.h"
#include "report/pretraining_report.h"

namespace tessera::cli {
namespace {

using report::PretrainingReport;

void write_files(const BertRequest& r, const PretrainingReport& report) {
  if (!r.report.empty()) io::write_text(r.report, page_of(report));
  if (!r.trace.empty()) io::write_text(r.trace, trace_of(report));
}

/// The number of replicas: one for each rank, or on the host, where ranks also divide stages, one for each
/// group of `stages` ranks.
uint32_t replicas_for(const BertRequest& r, uint32_t ranks) {
  return r.machine == "host" ? std::max(1U, ranks / std::max(1U, r.settings.stages)) : ranks;
}

/// The ranks that mpirun has started, which divide the replicas and their stages among them; null: there are
/// none.
std::shared_ptr<Communicator> ranks_for(BertRequest& r, const CLI::App& command) {
  if (started_ranks() == 1) return {};
  if (r.estimate || r.plan)
    throw UsageError("--estimate and --plan take one process: run them without mpirun");
  std::shared_ptr<Communicator> ranks = connect_ranks(r.ranks);
  if (command.count("--replicas") == 0) r.settings.replicas = replicas_for(r, ranks->size());
  return ranks;
}

std::string output_of(const BertRequest& r, const BertTrainer& trainer, const PretrainingReport& report,
                      uint64_t first) {
  if (r.json) return json_of(r, trainer, report, first);
  return r.estimate ? heading(report) + estimate(report) + printed(r, report) : summary(report);
}

int train(const BertRequest& r, BertTrainer& trainer, PretrainingReport& report, Communicator* ranks) {
  return run_training(
      {.options = r,
       .ranks = ranks,
       .heading = heading(report) + printed(r, report) + "\n" + report::heading_of_evaluations(),
       .output = [&](uint64_t first) { return output_of(r, trainer, report, first); },
       .write_files = [&] { write_files(r, report); },
       .begin =
           [&] {
             if (!r.init.empty()) trainer.load_parameters(r.init);
           },
       .finish =
           [&] {
             if (report.pretrained->finished && !r.save.empty()) trainer.save_parameters(r.save);
           }},
      trainer, report, report.pretrained);
}

int run(const BertRequest& request, const CLI::App& command, const std::shared_ptr<Communicator>& ranks) {
  const Machine machine = machine_for(request);  // before the text, which takes long
  TextSplit text;
  ranks::do_on_each(ranks.get(), [&] { text = text_for(request); });
  if (request.plan) return show_plan(request, machine, text, command);
  const PretrainingSettings settings = settings_of(request);
  BertTrainer trainer = request.estimate
                            ? BertTrainer::for_estimates(settings, text, machine, request.threads)
                            : BertTrainer(settings, text, machine, request.threads, ranks);
  PretrainingReport report = report_of(request, trainer, machine, text);
  return train(request, trainer, report, ranks.get());
}

int run(BertRequest request, const CLI::App& command) {
  check(request, command);
  const std::shared_ptr<Communicator> ranks = ranks_for(request, command);
  return run_as_rank(ranks.get(), [&] { return run(request, command, ranks); });
}

}  // namespace

Command add_train_bert_command(CLI::App& train) {
  CLI::App& command = *train.add_subcommand("bert", "Pre-train BERT on packs of sequences");
  auto request = std::make_shared<BertRequest>();
  add_bert_options(command, *request);
  add_common_options(command, *request);
  command.footer(
      "\nExamples:\n"
      "  tessera train bert --steps 200\n"
      "  tessera train bert --data wikitext --length 128 --epochs 5 --save model.safetensors\n"
      "  tessera train bert --size base --data wiki --length 128,512 --steps 900,100 --batch 64,16 "
      "--micro-batches 8 --numbers mlperf-v1 --checkpoint run.safetensors --resume\n"
      "  tessera train bert --length 64 --batch 1 --machine gc200 --estimate\n"
      "  tessera train bert --config mlperf-v1.0-pod16 --plan\n"
      "  mpirun -n 4 tessera train bert --size base --data wiki --batch 64 --numbers bf16");
  return [request, &command] { return run(*request, command); };
}

}  // namespace tessera::cli
