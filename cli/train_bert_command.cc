#include <fmt/format.h>
#include <tessera/communicator.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "cli/bert_plan.h"
#include "cli/bert_report.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/train_display.h"
#include "cli/train_output.h"
#include "io/atomic_file.h"
#include "ranks/agreement.h"
#include "report/pretraining_report.h"

namespace tessera::cli {
namespace {

using report::PretrainingReport;

/// No rank can begin from the start if one rank has a checkpoint.
void begin(const BertRequest& r, BertTrainer& trainer, Communicator* ranks) {
  if (ranks::is_any(ranks, continues(r)))
    trainer.resume(r.checkpoint, r.allow_different_bits);
  else if (!r.init.empty())
    trainer.load_parameters(r.init);
}

void write_files(const BertRequest& r, const PretrainingReport& report) {
  if (!r.report.empty()) io::write_text(r.report, page_of(report));
  if (!r.trace.empty()) io::write_text(r.trace, trace_of(report));
}

/// The number of replicas: one for each rank, or on the host, where ranks divide stages as well, one for each
/// `stages` ranks.
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

int train(const BertRequest& r, BertTrainer& trainer, PretrainingReport& report, Communicator* ranks) {
  begin(r, trainer, ranks);
  const uint64_t first = trainer.step();
  if (!r.json) fmt::print("{}{}\n{}", heading(report), printed(r, report), report::heading_of_evaluations());
  std::fflush(stdout);
  const Interruption interruption;
  TrainDisplay display(!r.json, first, trainer.steps());
  report.pretrained =
      trainer.train({.checkpoint = r.checkpoint, .progress = [&](const PretrainingProgress& now) {
                       display.show(now);
                       return Interruption::pending() == 0;
                     }});
  display.clear();
  const PretrainingResult& result = *report.pretrained;
  fmt::print("{}", r.json ? json_of(r, trainer, report, first) : summary(report));
  const bool saved = write_or_complain([&] {
    if (result.finished && !r.save.empty()) trainer.save_parameters(r.save);
  });
  const bool written = write_or_complain([&] { ranks::do_once(ranks, [&] { write_files(r, report); }); });
  if (result.finished) return saved && written ? 0 : 1;
  complain(stopped_text(r, result.step, trainer.steps()));
  const int last_signal = Interruption::pending();
  return 128 + (last_signal != 0 ? last_signal : SIGTERM);  // another rank may have had it
}

int show_estimate(const BertRequest& r, const BertTrainer& trainer, const PretrainingReport& report) {
  fmt::print("{}", r.json ? json_of(r, trainer, report, 0)
                          : heading(report) + estimate(report) + printed(r, report));
  const bool written = write_or_complain([&] { write_files(r, report); });
  const int status = complain_of_overflow(report);
  return written ? status : 1;
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
  return request.estimate ? show_estimate(request, trainer, report)
                          : train(request, trainer, report, ranks.get());
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
