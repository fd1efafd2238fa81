// The schedule of a run, and its load balance.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "report/chart.h"
#include "report/phases.h"
#include "report/run_report.h"

namespace tessera::report {
namespace {

using Align = RichTable::Align;
using program::Phase;

constexpr size_t kMostSpans = 3000;  // more would make a page slow

std::string seconds_of(double seconds) { return value_text(seconds, Unit::seconds); }

/// Number of executions that are drawn one by one.
size_t drawn_runs(const RunSummary& run) {
  size_t spans = 0;
  size_t runs = 0;
  while (runs < run.runs.size() && spans < kMostSpans) spans += run.runs[runs++].phases.size();
  return runs;
}

Timeline::Lane lane_of_steps(const RunSummary& run, size_t runs) {
  Timeline::Lane lane{run.measured ? "steps" : "all tiles", {}};
  for (size_t r = 0; r < runs; ++r) {
    const StepSummary& step = run.steps[run.runs[r].step];
    double at = run.runs[r].begin;
    for (const auto& [phase, seconds] : run.runs[r].phases) {
      const bool is_main = phase != Phase::sync && phase != Phase::control;
      lane.spans.push_back({at, seconds, static_cast<size_t>(phase), is_main ? step.name : "",
                            fmt::format("{}: {} {}\nfrom {}", step.name, name_of(phase), seconds_of(seconds),
                                        seconds_of(at))});
      at += seconds;
    }
  }
  return lane;
}

/// The compute time of a modelled machine's tile: it starts with the others, and may finish earlier.
Timeline::Lane lane_of_tile(const RunSummary& run, size_t runs, size_t sample) {
  const TileSample& tile = run.samples[sample];
  Timeline::Lane lane{fmt::format("{} tile, {}", tile.name, tile.tile), {}};
  for (size_t r = 0; r < runs; ++r) {
    const StepSummary& step = run.steps[run.runs[r].step];
    if (step.sampled[sample] == 0) continue;
    const double begin = run.runs[r].begin + before_computing(step.phases);
    lane.spans.push_back(
        {begin, step.sampled[sample], static_cast<size_t>(computing_phase(step.phases)), step.name,
         fmt::format("{} on tile {}: {}", step.name, tile.tile, seconds_of(step.sampled[sample]))});
  }
  return lane;
}

Timeline::Lane lane_of_thread(const RunSummary& run, size_t runs, size_t thread) {
  Timeline::Lane lane{fmt::format("thread {}", thread), {}};
  for (size_t r = 0; r < runs; ++r) {
    const StepRun& step = run.runs[r];
    if (thread >= step.threads.size()) continue;
    const auto [begin, end] = step.threads[thread];
    const std::string& name = run.steps[step.step].name;
    lane.spans.push_back({begin, end - begin, static_cast<size_t>(computing_phase(step.phases)), name,
                          fmt::format("{} on thread {}: {}", name, thread, seconds_of(end - begin))});
  }
  return lane;
}

Html timeline_of(const RunSummary& run) {
  const size_t runs = drawn_runs(run);
  Timeline timeline;
  timeline.frame.title = run.measured ? "The run with the median time" : "One run";
  timeline.time = {"", Unit::seconds, Growth::linear, 0, {}};
  timeline.categories = phase_categories();
  timeline.lanes.push_back(lane_of_steps(run, runs));
  size_t threads = 0;
  for (const StepRun& step : run.runs) threads = std::max(threads, step.threads.size());
  for (size_t t = 0; t < threads; ++t) timeline.lanes.push_back(lane_of_thread(run, runs, t));
  for (size_t s = 0; s < run.samples.size(); ++s) timeline.lanes.push_back(lane_of_tile(run, runs, s));
  const uint64_t all = run.runs.size() + run.runs_left_out;
  if (runs < all)
    timeline.frame.note = fmt::format("The first {} of {} steps.", count_text(runs), count_text(all));
  return chart(timeline);
}

/// Indices of steps in the order of their first execution.
std::vector<size_t> in_order_of_run(const RunSummary& run) {
  std::vector<size_t> first(run.steps.size(), run.runs.size());
  for (size_t r = run.runs.size(); r-- > 0;) first[run.runs[r].step] = r;
  std::vector<size_t> order(run.steps.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return first[a] < first[b]; });
  return order;
}

std::string imbalance_text(const StepSummary& step) {
  return step.tiles.mean > 0 ? fmt::format("{:.2f} ×", step.tiles.most / step.tiles.mean) : "–";
}

Html steps_table(const RunSummary& run) {
  const bool measured = run.measured;
  const std::string who = measured ? "thread" : "tile";
  RichTable table({{"step", Align::left},
                   {"runs"},
                   {"time"},
                   {"fraction", Align::left},
                   {"least busy " + who},
                   {"mean"},
                   {"busiest"},
                   {"busiest ÷ mean"},
                   {"exchanged"}});
  double total = 0;
  for (const StepSummary& step : run.steps) total += step.seconds.total();
  for (const size_t s : in_order_of_run(run)) {
    const StepSummary& step = run.steps[s];
    const double share = total > 0 ? step.seconds.total() / total : 0;
    RichTable::Cell bar(share_bar(share, phase_colour(main_phase(step.seconds))));
    bar.title = fmt::format("{:.1f} % of the time", 100 * share);
    table.add({step.name, count_text(step.times), seconds_of(step.seconds.total()), bar,
               seconds_of(step.tiles.least), seconds_of(step.tiles.mean), seconds_of(step.tiles.most),
               imbalance_text(step),
               step.exchanged_bytes == 0 ? "–" : base::bytes_text(step.exchanged_bytes)});
  }
  return table.html();
}

Html phase_bars(const RunSummary& run) {
  BarChart bars;
  bars.frame.title = "Where the time goes";
  bars.value = {"", Unit::seconds};
  bars.categories = phase_categories();
  for (const StepSummary& step : run.steps)
    bars.bars.push_back({step.name, {step.seconds.at.begin(), step.seconds.at.end()}, ""});
  return chart(bars);
}

Html busy_columns(const RunSummary& run) {
  if (run.busy.empty() || run.samples.empty()) return {};
  ColumnChart chart_of;
  chart_of.frame = {"Compute time, tile by tile", "", kHalf, 250};
  chart_of.y = {"", Unit::seconds};
  chart_of.categories = {{"computing", phase_colour(Phase::compute)}};
  add_tiles(chart_of, run.busy, "busiest", [&](size_t t) {
    return ColumnChart::Column{{run.busy[t]}, fmt::format("tile {}: {}", t, seconds_of(run.busy[t]))};
  });
  const double mean =
      std::accumulate(run.busy.begin(), run.busy.end(), 0.0) / static_cast<double>(run.busy.size());
  chart_of.limit = Limit{mean, fmt::format("mean {}", seconds_of(mean)), false};
  return chart(chart_of);
}

Html busy_histogram(const RunSummary& run) {
  if (run.busy.empty() || run.samples.empty()) return {};
  Histogram histogram;
  histogram.frame = {"Tiles by compute time", "", kHalf, 250};
  histogram.x = {"", Unit::seconds, Growth::linear, 0, {}};
  histogram.y.label = "tiles";
  histogram.bins = bins_of(run.busy);
  return chart(histogram);
}

}  // namespace

Html schedule_of(const RunSummary& run) {
  Html all = run.runs.empty() ? phase_bars(run) : timeline_of(run);
  all += steps_table(run);
  if (!run.busy.empty()) all += side_by_side({busy_columns(run), busy_histogram(run)});
  return all;
}

}  // namespace tessera::report
