#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/pipeline_actions.h>

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
  bool actions = false;
  std::vector<uint32_t> places = {};
  uint32_t replicas = 1;
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

/// The actions, by part of the chips.
ordered_json actions_json(const graph::ActionList& list, const std::vector<StageTimes>& times) {
  ordered_json places = ordered_json::array();
  for (uint32_t place = 0; place < list.places(); ++place) places.push_back(ordered_json::array());
  for (const auto& [action, begin, end] : timed(list, times))
    places[list.links.places[action.stage]].push_back(
        {{"action", to_string(action)}, {"begin", begin}, {"end", end}});
  return places;
}

ordered_json passes_json(const PipelineSchedule& schedule, const std::vector<StageTimes>& times) {
  ordered_json passes = ordered_json::array();
  for (const graph::TimedPass& timed : graph::timed(schedule, times))
    passes.push_back({{"pass", name_of(timed.pass.kind)},
                      {"stage", timed.pass.stage},
                      {"micro_batch", timed.pass.micro_batch},
                      {"begin", timed.begin},
                      {"end", timed.end}});
  return passes;
}

void check_request(const PipelineRequest& r) {
  if (!r.actions && (!r.places.empty() || r.replicas > 1))
    throw UsageError("--places and --replicas are for --actions: add it, or leave them out");
  if (r.actions && !r.svg.empty())
    throw UsageError("--svg draws the passes of stages, not --actions: leave out one of them");
}

int show(const PipelineRequest& r) {
  check_request(r);
  const graph::Pipeline pipeline{graph::pipeline_named(r.kind), {r.recomputed.begin(), r.recomputed.end()}};
  if (!r.svg.empty()) {
    check_extension("--svg", r.svg, {".svg"});
    io::require_writable(r.svg);
  }
  const PipelineSchedule schedule = graph::pipeline_schedule(pipeline, r.stages, r.micro_batches);
  const std::vector<StageTimes> times(r.stages, r.times);
  const graph::ActionList list =
      r.actions ? actions_of(schedule, graph::chain_of_stages(r.stages, r.places, r.replicas > 1))
                : graph::ActionList();
  const PipelineAnalysis analysis = r.actions ? analyse(list, times) : analyse(schedule, times);
  if (!r.svg.empty()) io::write_text(r.svg, svg_file(report::lanes_of(schedule, times)));
  if (r.json) {
    ordered_json result = {
        {"schedule", r.kind},    {"stages", r.stages},    {"micro_batches", r.micro_batches},
        {"time", analysis.time}, {"used", analysis.used}, {"in_flight", analysis.in_flight}};
    if (r.actions)
      result["actions"] = actions_json(list, times);
    else
      result["passes"] = passes_json(schedule, times);
    fmt::print("{}\n",
               io::json_text(ordered_json{{"schema", 1}, {"command", "pipeline"}, {"results", {result}}}, 2));
    return 0;
  }
  fmt::print("{}\n{} work {} of the time, with up to {} micro-batches in flight\n",
             r.actions ? to_string(list) : to_string(schedule), r.places.empty() ? "stages" : "chips",
             report::value_text(analysis.used, report::Unit::share), fmt::join(analysis.in_flight, ", "));
  return 0;
}

}  // namespace

Command add_pipeline_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "pipeline",
      "Show the schedule of a pipeline: the passes of micro-batches through the stages of a network");
  auto request = std::make_shared<PipelineRequest>();
  command.add_option("schedule", request->kind, "sequential, grouped, interleaved, 1f1b or zb-h1")
      ->required();
  add_count(command, "--stages", request->stages, "Number of stages (default: 4)", kMostStages);
  add_count(command, "--micro-batches", request->micro_batches, "Number of micro-batches (default: 8)",
            kMostMicroBatches);
  add_counts(command, "--recompute", request->recomputed,
             "Stages that compute forward passes again before backward passes, such as 0,1");
  add(command, "--times", request->times, parse_times,
      "Times of a forward and of a backward pass; separate passes for gradients of inputs and of weights "
      "take "
      "half of a backward pass each (default: 1,2)");
  command.add_flag(
      "--actions", request->actions,
      "List the actions of each stage's chips: passes, sending, receiving, and sums of gradients");
  add_counts(command, "--places", request->places,
             "With --actions: the part of the chips on which each stage lies, such as 0,1,1,0 (default: its "
             "own part)");
  add_count(command, "--replicas", request->replicas,
            "With --actions: number of replicas, over which gradients are summed (default: 1)");
  command.add_option("--svg", request->svg, "Write a picture: a lane for each stage (.svg)");
  command.add_flag("--json", request->json, "Print one JSON object");
  command.footer(
      "\nExamples:\n"
      "  tessera pipeline 1f1b --stages 4 --micro-batches 8\n"
      "  tessera pipeline interleaved --stages 2 --micro-batches 4 --actions --replicas 2\n"
      "  tessera pipeline grouped --stages 3 --micro-batches 6 --svg grouped.svg");
  return [request] { return show(*request); };
}

}  // namespace tessera::cli
