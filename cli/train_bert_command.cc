#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "cli/bert_report.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/train_output.h"
#include "io/atomic_file.h"
#include "report/pretraining_report.h"

namespace tessera::cli {
namespace {

using report::PretrainingReport;

/// A bar, and a line per evaluation.
class Display {
 public:
  Display(bool rows, uint64_t first, uint64_t steps) : rows_(rows), first_(first), bar_(steps - first) {}

  void show(const PretrainingProgress& now) {
    if (now.evaluated != nullptr && rows_) {
      bar_.clear();
      fmt::print("{}", report::text_of(*now.evaluated));
      std::fflush(stdout);
    }
    constexpr std::chrono::milliseconds kPause{100};
    if (std::chrono::steady_clock::now() - shown_ < kPause) return;
    shown_ = std::chrono::steady_clock::now();
    bar_.show(now.step - first_, fmt::format("epoch {}, loss {:.4f}", now.epoch, now.loss));
  }
  void clear() { bar_.clear(); }

 private:
  bool rows_;
  uint64_t first_;
  Progress bar_;
  std::chrono::steady_clock::time_point shown_;
};

void begin(const BertRequest& r, BertTrainer& trainer) {
  if (!r.init.empty()) trainer.load_parameters(r.init);
  if (!r.resume) return;
  if (std::filesystem::exists(r.checkpoint))
    trainer.resume(r.checkpoint, r.allow_different_bits);
  else
    complain(fmt::format("{} does not exist yet: training starts anew", r.checkpoint));
}

int train(const BertRequest& r, BertTrainer& trainer, PretrainingReport& report) {
  begin(r, trainer);
  const uint64_t first = trainer.step();
  if (!r.json) fmt::print("{}{}\n{}", heading(report), printed(r, report), report::heading_of_evaluations());
  std::fflush(stdout);
  const Interruption interruption;
  Display display(!r.json, first, trainer.steps());
  report.pretrained =
      trainer.train({.checkpoint = r.checkpoint, .progress = [&](const PretrainingProgress& now) {
                       display.show(now);
                       return Interruption::pending() == 0;
                     }});
  display.clear();
  const PretrainingResult& result = *report.pretrained;
  fmt::print("{}", r.json ? json_of(r, trainer, report, first) : summary(report));
  if (!r.report.empty()) io::write_text(r.report, page_of(report));
  if (!r.save.empty()) trainer.save_parameters(r.save);
  if (result.finished) return 0;
  complain(stopped_text(r, result.step, trainer.steps()));
  return 128 + Interruption::pending();
}

int show_estimate(const BertRequest& r, const BertTrainer& trainer, const PretrainingReport& report) {
  fmt::print("{}", r.json ? json_of(r, trainer, report, 0)
                          : heading(report) + estimate(report) + printed(r, report));
  if (!r.report.empty()) io::write_text(r.report, page_of(report));
  return complain_of_overflow(report);
}

int run(BertRequest request, const CommonOptions& common, const CLI::App& command) {
  request.json = common.json;
  request.threads = common.threads;
  check(request, command);
  const Machine machine = machine_for(request);  // before the text, which takes long
  const TextSplit text = text_for(request);
  BertTrainer trainer(settings_of(request), text, machine, request.threads, request.estimate);
  PretrainingReport report = report_of(request, trainer, machine, text);
  return request.estimate ? show_estimate(request, trainer, report) : train(request, trainer, report);
}

}  // namespace

Command add_train_bert_command(CLI::App& train) {
  CLI::App& command = *train.add_subcommand("bert", "Pre-train BERT on packs of sequences");
  auto request = std::make_shared<BertRequest>();
  auto common = std::make_shared<CommonOptions>();
  add_bert_options(command, *request);
  add_common_options(command, *common);
  command.footer(
      "\nExamples:\n"
      "  tessera train bert --steps 200\n"
      "  tessera train bert --data wikitext --length 128 --epochs 5 --save model.safetensors\n"
      "  tessera train bert --size base --data wiki --length 128,512 --steps 900,100 --batch 64,16 "
      "--micro-batches 8 --numbers mlperf-v1 --checkpoint run.safetensors --resume\n"
      "  tessera train bert --vocabulary 500 --length 64 --batch 1 --optimizer adamw --machine gc200 "
      "--estimate");
  return [request, common, &command] { return run(*request, *common, command); };
}

}  // namespace tessera::cli
