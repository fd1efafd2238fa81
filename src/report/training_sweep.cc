#include "report/training_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/median.h"
#include "report/chart.h"
#include "report/page.h"

namespace tessera::report {
namespace {

std::vector<const SweepRun*> runs_with(const std::vector<SweepRun>& runs, uint32_t batch) {
  std::vector<const SweepRun*> found;
  for (const SweepRun& run : runs)
    if (run.batch == batch) found.push_back(&run);
  return found;
}

std::optional<double> epoch_seconds_of(const std::vector<const SweepRun*>& runs) {
  const TrainingReport& first = runs[0]->report;
  if (first.modelled)
    return double(first.steps_per_epoch) * first.phases[0].step.seconds +
           double(first.validation_batches) * first.phases[0].evaluation.seconds;
  std::vector<double> seconds;
  for (const SweepRun* run : runs)
    for (const EpochResult& epoch : run->report.result->epochs)
      if (epoch.seconds > 0) seconds.push_back(epoch.seconds);
  if (seconds.empty()) return std::nullopt;
  return base::median(seconds);
}

SweepPoint point_of(const std::vector<const SweepRun*>& runs) {
  SweepPoint point{.batch = runs[0]->batch,
                   .seeds = {},
                   .steps_per_epoch = runs[0]->report.steps_per_epoch,
                   .accuracies = {},
                   .accuracy = {},
                   .epoch_seconds = epoch_seconds_of(runs)};
  for (const SweepRun* run : runs) {
    point.seeds.push_back(run->seed);
    point.accuracies.push_back(run->report.result->test_accuracy.value());
  }
  point.accuracy = interval_of(point.accuracies);
  return point;
}

std::string epoch_text(const SweepPoint& point) {
  return point.epoch_seconds ? value_text(*point.epoch_seconds, Unit::seconds) : "earlier";
}

Html accuracy_chart(const std::vector<SweepPoint>& points) {
  LineChart lines;
  lines.frame = {"Test accuracy", "Small markers: ends of the 95 % intervals", kHalf, 300};
  lines.x = {"batch", Unit::number, Growth::log2};
  lines.y = {"accuracy", Unit::share};
  lines.series = {{"mean", {}, 0}, {"seeds", {}, 1}, {"interval", {}, 2}};
  lines.series[1].line = lines.series[2].line = false;
  for (const SweepPoint& point : points) {
    lines.series[0].points.push_back(
        {double(point.batch), point.accuracy.mean, accuracy_text(point.accuracy)});
    for (double accuracy : point.accuracies)
      lines.series[1].points.push_back({double(point.batch), accuracy});
    if (!std::isfinite(point.accuracy.margin)) continue;
    for (double end : {-point.accuracy.margin, point.accuracy.margin})
      lines.series[2].points.push_back({double(point.batch), point.accuracy.mean + end});
  }
  return chart(lines);
}

Html time_chart(const std::vector<SweepPoint>& points) {
  LineChart lines;
  lines.frame = {"Time per epoch", "", kHalf, 300};
  lines.x = {"batch", Unit::number, Growth::log2};
  lines.y = {"time", Unit::seconds, Growth::linear, 0.0};
  lines.series = {{"median", {}, 0}};
  for (const SweepPoint& point : points)
    if (point.epoch_seconds) lines.series[0].points.push_back({double(point.batch), *point.epoch_seconds});
  return chart(lines);
}

/// Mean validation accuracy of the seeds.
Html learning_chart(const std::vector<SweepRun>& runs, const std::vector<SweepPoint>& points) {
  LineChart lines;
  lines.frame = {"Validation accuracy, mean of the seeds", "", kWide, 320};
  lines.x.label = "epoch";
  lines.y = {"accuracy", Unit::share};
  for (const SweepPoint& point : points) {
    const std::vector<const SweepRun*> of = runs_with(runs, point.batch);
    Series& series = lines.series.emplace_back();
    series.name = fmt::format("batch {}", point.batch);
    for (size_t i = 0; i < of[0]->report.result->epochs.size(); ++i) {
      double sum = 0;
      for (const SweepRun* run : of) sum += run->report.result->epochs.at(i).validation_accuracy;
      series.points.push_back({double(i + 1), sum / double(of.size())});
    }
  }
  return chart(lines);
}

Html runs_of(const std::vector<SweepRun>& runs) {
  RichTable table({{"batch"}, {"seed"}, {"test accuracy"}, {"test loss"}, {"epoch"}, {"step"}});
  for (const SweepRun& run : runs) {
    const TrainingResult& result = *run.report.result;
    table.add({fmt::format("{}", run.batch), fmt::format("{}", run.seed),
               fmt::format("{:.2f} %", 100 * result.test_accuracy.value()),
               fmt::format("{:.4f}", result.test_loss.value()), fmt::format("{}", result.best_epoch),
               result.steps_run > 0 ? value_text(result.step_seconds, Unit::seconds) : "earlier"});
  }
  return table.html();
}

}  // namespace

std::vector<SweepPoint> points_of(const std::vector<SweepRun>& runs) {
  std::vector<SweepPoint> points;
  for (const SweepRun& run : runs)
    if (std::ranges::none_of(points, [&](const SweepPoint& point) { return point.batch == run.batch; }))
      points.push_back(point_of(runs_with(runs, run.batch)));
  return points;
}

std::string accuracy_text(const Interval& accuracy) {
  return to_string({100 * accuracy.mean, 100 * accuracy.margin}, 2) + " %";
}

Table sweep_table(const std::vector<SweepPoint>& points) {
  Table table({"batch", "seeds", "steps per epoch", "test accuracy", "time per epoch"}, {});
  for (const SweepPoint& point : points)
    table.add({fmt::format("{}", point.batch), fmt::format("{}", point.seeds.size()),
               count_text(point.steps_per_epoch), accuracy_text(point.accuracy), epoch_text(point)});
  return table;
}

std::string page_of(const std::vector<SweepRun>& runs) {
  const TrainingReport& first = runs[0].report;
  const std::vector<SweepPoint> points = points_of(runs);
  Page page(fmt::format("Training of {}", first.network), fmt::format("{}, {}", first.data, first.machine));
  Html overview = table(sweep_table(points));
  overview += paragraph(
      "Intervals of 95 % confidence for the mean (Student's t). The time is the median of all epochs, with "
      "their evaluation.");
  overview += side_by_side({accuracy_chart(points), time_chart(points)});
  overview += learning_chart(runs, points);
  page.add_section("Results", overview);
  page.add_section("Trainings", runs_of(runs));
  page.add_section("Settings", settings_table(first, {"batch", "seed"}));
  return page.html();
}

}  // namespace tessera::report
