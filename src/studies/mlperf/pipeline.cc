// Pipelines: the grouped schedule's picture, recomputation, and what both cost.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/pipeline.h>

#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "report/chart.h"
#include "report/lanes.h"
#include "studies/mlperf/bert_steps.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

using graph::PipelineKind;

constexpr std::string_view kPipeline = "pipeline";

/// As many stages as the slides' F1 to F3, and a whole round of the grouped schedule.
constexpr uint32_t kStages = 3, kMicroBatches = 6;

graph::PipelineSchedule schedule_of(PipelineKind kind, bool recomputes, uint32_t stages,
                                    uint32_t micro_batches) {
  std::set<uint32_t> recomputed;
  for (uint32_t stage = 0; recomputes && stage < stages; ++stage) recomputed.insert(stage);
  return graph::pipeline_schedule({kind, recomputed}, stages, micro_batches);
}

/// A forward pass takes 1, a backward pass 2.
std::vector<graph::StageTimes> times_of(uint32_t stages) { return std::vector<graph::StageTimes>(stages); }

/// A row for each stage: "stage 0: F0 F1 …".
Figure picture_of(const std::string& title, const std::string& note, bool recomputes) {
  Figure figure{title, note, {"stages, slot by slot"}};
  std::istringstream lines(to_string(schedule_of(PipelineKind::grouped, recomputes, kStages, kMicroBatches)));
  for (std::string line; std::getline(lines, line);) figure.rows.push_back({Figure::Entry{line}});
  return figure;
}

/// The time of each schedule of a replica of v1.0 on a POD64: its stages, including the prediction's stage.
Figure schedules_figure() {
  const BertSetup* setup = find_setup("v1.0 POD64");
  const auto stages = static_cast<uint32_t>(setup->layers.size());
  Figure figure{
      fmt::format("Schedules of {} stages and {} micro-batches", stages, setup->micro_batches),
      "A forward pass takes 1, a backward pass 2, on all stages alike. Of each micro-batch in flight a stage "
      "keeps what its backward pass takes; with recomputation this is its input alone.",
      {"schedule", "recomputation", "time", "stages work", "micro-batches in flight, by stage"}};
  for (const PipelineKind kind : {PipelineKind::sequential, PipelineKind::grouped, PipelineKind::interleaved,
                                  PipelineKind::one_forward_one_backward})
    for (const bool recomputes : {false, true}) {
      const graph::PipelineAnalysis analysis =
          graph::analyse(schedule_of(kind, recomputes, stages, setup->micro_batches), times_of(stages));
      figure.rows.push_back({{std::string(graph::name_of(kind))},
                             {recomputes ? "all stages" : "none"},
                             {fmt::format("{:.0f}", analysis.time)},
                             {fmt::format("{:.1f} %", 100 * analysis.used)},
                             {fmt::format("{}", fmt::join(analysis.in_flight, ", "))}});
    }
  return figure;
}

Ours grouped_picture(const Study&) {
  const graph::PipelineSchedule schedule = schedule_of(PipelineKind::grouped, false, kStages, kMicroBatches);
  const graph::PipelineAnalysis analysis = graph::analyse(schedule, times_of(kStages));
  return in_words(
      Origin::modelled,
      fmt::format("drawn below, and by tessera pipeline grouped --stages 3 --micro-batches 6: stages work "
                  "{:.0f} % of the time, with up to {} micro-batches in flight",
                  100 * analysis.used, fmt::join(analysis.in_flight, ", ")));
}

Ours recomputed_passes(const Study&) {
  const auto taken = [](bool recomputes) {
    return graph::analyse(schedule_of(PipelineKind::grouped, recomputes, kStages, kMicroBatches),
                          times_of(kStages))
        .time;
  };
  return in_words(
      Origin::modelled,
      fmt::format("drawn below: R1 to R3 are F1 to F3 again, before B1 to B3; it takes {:.0f} instead of "
                  "{:.0f}, if a backward pass takes twice a forward pass",
                  taken(true), taken(false)));
}

Ours hybrid_parallelism(const Study&) {
  std::string all;
  for (const BertSetup& setup : bert_setups())
    all += fmt::format("{}{}: {} replicas of {} chips", all.empty() ? "" : "; ", setup.name, setup.replicas,
                       setup.layers.size());
  return in_words(Origin::modelled, all);
}

const std::vector<Beside>& beside_pipeline() {
  static const std::vector<Beside> all = {
      {"forward pass",
       [](const Study&) {
         return in_words(Origin::modelled,
                         "the forward passes of the schedules below; layers of stages are in the section "
                         "bert-steps");
       }},
      {"grouped schedule", grouped_picture},
      {"frameworks",
       [](const Study&) {
         return in_words(Origin::computed,
                         "C++, Python and the tool: tessera train bert --stages --pipeline");
       }},
      {"frameworks: hybrid parallelism",
       [](const Study&) {
         return in_words(Origin::computed, "C++, Python and the tool: --stages, --replicas and --recompute");
       }},
      {"performance of strategies",
       [](const Study&) {
         return in_words(Origin::modelled,
                         "what packing, sharding, local batches and recomputation gain is in the sections "
                         "speed-up, sharding, batch and resnet");
       }},
      {"strategies",
       [](const Study&) {
         return in_words(Origin::computed,
                         "transforms of any graph: stages, replicas, recomputation, sharding, offload");
       }},
      {"recomputation", recomputed_passes},
      {"hybrid parallelism", hybrid_parallelism},
      {"data parallelism",
       [](const Study&) {
         return in_words(Origin::computed,
                         "--replicas, of any network; and processes of mpirun or torchrun on hosts");
       }},
  };
  return all;
}

std::vector<Row> pipeline_rows(const Study& study) { return rows_of(study, kPipeline, beside_pipeline()); }

std::vector<Figure> pipeline_figures(const Study& study) {
  return {
      figure_of("Pipelines", "", pipeline_rows(study)),
      picture_of("The grouped schedule of three stages",
                 "F3: the forward pass of micro-batch 3; B3: its backward pass; dots: a stage waits.", false),
      picture_of("The same with recomputation", "R3: the forward pass of micro-batch 3 again.", true),
      schedules_figure()};
}

report::Html pipeline_charts(const Study&) {
  report::Html all;
  for (const bool recomputes : {false, true}) {
    report::Timeline picture = report::lanes_of(
        schedule_of(PipelineKind::grouped, recomputes, kStages, kMicroBatches), times_of(kStages));
    picture.frame.title = recomputes ? "The grouped schedule with recomputation" : "The grouped schedule";
    picture.frame.note = "F3, R3, B3: the forward, recomputed and backward pass of micro-batch 3.";
    all += report::chart(picture);
  }
  return all;
}

std::vector<Comparison> pipeline_comparisons(const Study& study) {
  return comparisons_of(pipeline_rows(study), "pipelines");
}

}  // namespace

Section pipeline_section() {
  return {.name = kPipeline,
          .title = "Pipelines and recomputation",
          .figures = pipeline_figures,
          .charts = pipeline_charts,
          .comparisons = pipeline_comparisons};
}

}  // namespace tessera::studies::mlperf
