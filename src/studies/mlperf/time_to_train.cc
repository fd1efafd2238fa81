// Times to train BERT-large on pods, beside the logs of MLPerf Training.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/chart.h"
#include "studies/mlperf/bert_steps.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kTime = "time";

/// Steps of a training with the same number of sequences as the packed training whose number of steps the
/// logs state.
std::optional<double> steps_of_training(const Study& study, const BertSetup& setup) {
  const auto steps = study.published.number(kStepsTable, "v1.1 POD16 packed", "steps");
  const auto batch = study.published.number(kStepsTable, "v1.1 POD16 packed", "listed");
  return steps && batch ? std::optional(*steps * *batch / setup.listed_batch()) : std::nullopt;
}

Ours minutes_of_bert(const Study& study, const std::string& round, uint32_t chips) {
  const BertSetup* setup = setup_of(round, chips);
  if (setup == nullptr) return none_because("no configuration of such a pod is known");
  const std::optional<ModelledStep> step = step_of(study, *setup);
  const std::optional<double> steps = steps_of_training(study, *setup);
  if (!step || !steps) return if_run({}, Origin::modelled, "");
  return modelled(
      *steps * step->seconds / 60,
      fmt::format("{:.0f} steps of {:.3f} s on {}, {}{}{}", *steps, step->seconds, setup->machine,
                  step->is_whole ? "the whole network" : "extrapolated",
                  setup->is_assumed ? "; setup assumed" : "", step->result->fits ? "" : "; does not fit"));
}

std::vector<Row> time_rows(const Study& study) { return rows_of_logs(study, "BERT", minutes_of_bert); }

std::vector<Figure> time_figures(const Study& study) {
  return {figure_of(
      "Minutes to train BERT-large",
      "Ours: steps of the training times a modelled step. Assumed: as many sequences as the packed POD16 "
      "of v1.1, 1,141 steps of 3,072, whatever the batch; v1.0 and v1.1 on GC200 with the configurations "
      "of v1.0; v2.0 on Bow chips. No evaluation, start or checkpoint counts. Closed rows may be packed "
      "too: 2,254 unpacked steps at the packed step's time would be 51 minutes, not 32.70.",
      time_rows(study))};
}

/// Minutes over chips: a series for each round and division, and ours for each round.
report::Html time_charts(const Study& study) {
  report::LineChart chart;
  chart.frame = {"Minutes to train BERT-large", "Published: hollow marks and dashed lines."};
  chart.x = {.label = "chips", .growth = report::Growth::log2};
  chart.y = {.label = "minutes", .growth = report::Growth::log10};
  size_t colour = 0;
  for (const char* round : {"v1.0", "v1.1", "v2.0"}) {
    report::Series ours{.name = fmt::format("{}, ours", round), .colour = colour};
    for (const char* division : {"closed", "open"}) {
      report::Series published{
          .name = fmt::format("{}, {}", round, division), .colour = colour, .reference = true};
      for (const PublishedRow& log : study.published.rows(kLogsTable)) {
        if (log.text("model") != "BERT" || log.text("round") != round || log.text("division") != division)
          continue;
        const double chips = log.number("chips");
        published.points.push_back({chips, log.number("minutes"), ""});
        const Ours modelled_minutes = minutes_of_bert(study, round, static_cast<uint32_t>(chips));
        if (division == std::string_view("closed") && modelled_minutes.value)
          ours.points.push_back({chips, *modelled_minutes.value, ""});
      }
      if (!published.points.empty()) chart.series.push_back(std::move(published));
    }
    if (!ours.points.empty()) chart.series.push_back(std::move(ours));
    ++colour;
  }
  return report::chart(chart);
}

std::vector<Comparison> time_comparisons(const Study& study) {
  return comparisons_of(time_rows(study), "time to train, BERT");
}

}  // namespace

Section time_section() {
  return {.name = kTime,
          .title = "Times to train BERT-large",
          .figures = time_figures,
          .charts = time_charts,
          .comparisons = time_comparisons,
          .reads = kSteps};
}

}  // namespace tessera::studies::mlperf
