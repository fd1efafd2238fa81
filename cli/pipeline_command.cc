#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/pipeline.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/option_parsing.h"
#include "cli/parse.h"
#include "io/atomic_file.h"
#include "io/json_text.h"
#include "report/axis.h"
#include "report/lanes.h"

namespace tessera::cli {
namespace {

using graph::PipelineAnalysis;
using graph::PipelineSchedule;
using graph::StageTimes;
using nlohmann::ordered_json;

constexpr uint32_t kMostStages = 64, kMostMicroBatches = 4096;

struct PipelineRequest {
  std::string kind;
  uint32_t stages = 4;
  uint32_t micro_batches = 8;
  std::vector<uint32_t> recomputed = {};
  StageTimes times = {};
  std::string svg = {};
  bool json = false;
};

StageTimes parse_times(const std::string& text) {
  const std::vector<std::string> times = parse_names(text);
  if (times.size() != 2) throw invalid_value("--times", text, "expected two numbers, such as 1,2");
  const StageTimes of_stage{parse_real("--times", times[0]), parse_real("--times", times[1])};
  if (of_stage.forward <= 0 || of_stage.backward <= 0)
    throw invalid_value("--times", text, "expected two numbers above 0");
  return of_stage;
}

ordered_json json_of(const PipelineRequest& r, const PipelineSchedule& schedule,
                     const PipelineAnalysis& analysis, const std::vector<StageTimes>& times) {
  ordered_json passes = ordered_json::array();
  for (const graph::TimedPass& timed : graph::timed(schedule, times))
    passes.push_back({{"pass", name_of(timed.pass.kind)},
                      {"stage", timed.pass.stage},
                      {"micro_batch", timed.pass.micro_batch},
                      {"begin", timed.begin},
                      {"end", timed.end}});
  return {{"schedule", r.kind},    {"stages", schedule.stages}, {"micro_batches", schedule.micro_batches},
          {"time", analysis.time}, {"used", analysis.used},     {"in_flight", analysis.in_flight},
          {"passes", passes}};
}

int show(const PipelineRequest& r) {
  const graph::Pipeline pipeline{graph::pipeline_named(r.kind), {r.recomputed.begin(), r.recomputed.end()}};
  if (!r.svg.empty()) {
    check_extension("--svg", r.svg, {".svg"});
    io::require_writable(r.svg);
  }
  const PipelineSchedule schedule = graph::pipeline_schedule(pipeline, r.stages, r.micro_batches);
  const std::vector<StageTimes> times(r.stages, r.times);
  const PipelineAnalysis analysis = analyse(schedule, times);
  if (!r.svg.empty()) io::write_text(r.svg, svg_file(report::lanes_of(schedule, times)));
  if (r.json) {
    const ordered_json result = json_of(r, schedule, analysis, times);
    fmt::print("{}\n",
               io::json_text(ordered_json{{"schema", 1}, {"command", "pipeline"}, {"results", {result}}}, 2));
    return 0;
  }
  fmt::print("{}\nstages work {} of the time, with up to {} micro-batches in flight\n", to_string(schedule),
             report::value_text(analysis.used, report::Unit::share), fmt::join(analysis.in_flight, ", "));
  return 0;
}

}  // namespace

Command add_pipeline_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "pipeline",
      "Show the schedule of a pipeline: the passes of micro-batches through the stages of a network");
  auto request = std::make_shared<PipelineRequest>();
  command.add_option("schedule", request->kind, "sequential, grouped, interleaved or 1f1b")->required();
  add_count(command, "--stages", request->stages, "Number of stages (default: 4)", kMostStages);
  add_count(command, "--micro-batches", request->micro_batches, "Number of micro-batches (default: 8)",
            kMostMicroBatches);
  add_counts(command, "--recompute", request->recomputed,
             "Stages that compute forward passes again before backward passes, such as 0,1");
  add(command, "--times", request->times, parse_times,
      "Times of a forward and of a backward pass (default: 1,2)");
  command.add_option("--svg", request->svg, "Write a picture: a lane for each stage (.svg)");
  command.add_flag("--json", request->json, "Print one JSON object");
  command.footer(
      "\nExamples:\n"
      "  tessera pipeline 1f1b --stages 4 --micro-batches 8\n"
      "  tessera pipeline grouped --stages 3 --micro-batches 6 --svg grouped.svg");
  return [request] { return show(*request); };
}

}  // namespace tessera::cli
