#include "report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/json_text.h"
#include "report/lanes.h"
#include "report/phases.h"

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

/// Whole nanoseconds, so that equal ends stay equal and nested spans stay nested.
int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

class TraceWriter {
 public:
  void add(size_t process, const TracedRun& traced) {
    const RunSummary& run = *traced.run;
    name("process_name", process, 0, traced.name);
    name("thread_name", process, kSteps, run.measured ? "steps" : "all tiles");
    name_tracks(process, run);
    for (const StepRun& step : run.runs) add_step(process, run, step);
  }

  void add(size_t process, const TracedLanes& traced) {
    if (traced.cost->lanes.empty()) return;
    name("process_name", process, 0, traced.name);
    const double seconds_a_cycle =
        traced.cost->seconds_without_host_io() / traced.cost->lanes[0].spans.back().end;
    for (const graph::ChipLane& lane : traced.cost->lanes) {
      name("thread_name", process, kFirstChip + lane.chip, fmt::format("chip {}", lane.chip));
      for (const graph::ChipSpan& span : lane.spans) {
        const bool has_stage = span.kind <= graph::ChipSpan::Kind::exchange;
        slice(process, kFirstChip + lane.chip, short_name(span), name_of(span.kind),
              span.begin * seconds_a_cycle, span.end * seconds_a_cycle,
              has_stage ? ordered_json{{"stage", span.stage}, {"micro-batch", span.micro_batch}}
                        : ordered_json());
      }
    }
    if (traced.cost->under_way.empty()) return;
    name("thread_name", process, kLinks, "links");
    for (const graph::ChipSpan& span : traced.cost->under_way)
      slice(process, kLinks, short_name(span), name_of(span.kind), span.begin * seconds_a_cycle,
            span.end * seconds_a_cycle);
  }

  std::string json() && { return std::move(out_) + "\n], \"displayTimeUnit\": \"ns\"}\n"; }

 private:
  static constexpr size_t kSteps = 0;
  static constexpr size_t kLinks = 999;
  static constexpr size_t kFirstChip = 1000;  ///< after threads and tiles

  void name_tracks(size_t process, const RunSummary& run) {
    size_t threads = 0;
    for (const StepRun& step : run.runs) threads = std::max(threads, step.threads.size());
    for (size_t t = 0; t < threads; ++t) name("thread_name", process, t + 1, fmt::format("thread {}", t));
    for (size_t s = 0; s < run.samples.size(); ++s)
      name("thread_name", process, s + 1,
           fmt::format("tile {} ({})", run.samples[s].tile, run.samples[s].name));
    for (const ChipSummary& chip : run.chips)
      name("thread_name", process, kFirstChip + chip.chip, fmt::format("chip {}", chip.chip));
  }

  void add_step(size_t process, const RunSummary& run, const StepRun& step) {
    const StepSummary& summary = run.steps[step.step];
    double at = step.begin;
    for (const auto& [phase, seconds] : step.phases) at += seconds;
    slice(process, kSteps, summary.name, summary.is_copy ? "copy" : "superstep", step.begin, at,
          summary.exchanged_bytes == 0 ? ordered_json()
                                       : ordered_json{{"exchanged bytes", summary.exchanged_bytes}});
    at = step.begin;
    for (const auto& [phase, seconds] : step.phases) {
      slice(process, kSteps, name_of(phase), "phase", at, at + seconds);
      at += seconds;
    }
    for (size_t t = 0; t < step.threads.size(); ++t)
      slice(process, t + 1, summary.name, "thread", step.threads[t].begin, step.threads[t].end);
    for (const ChipRun& chip : step.chips)
      slice(process, kFirstChip + run.chips.at(chip.chip).chip, summary.name, "chip", chip.busy.begin,
            chip.busy.end);
    const double computing = step.begin + before_computing(step.phases);
    for (size_t s = 0; s < summary.sampled.size(); ++s)
      slice(process, s + 1, summary.name, "tile", computing, computing + summary.sampled[s]);
  }

  void slice(size_t process, size_t track, std::string_view what, std::string_view category, double begin,
             double end, const ordered_json& details = {}) {
    const int64_t first = nanoseconds(begin);
    const int64_t length = std::max<int64_t>(nanoseconds(end) - first, 0);
    if (length == 0) return;
    ordered_json event = {{"ph", "X"},
                          {"name", what},
                          {"cat", category},
                          {"pid", process},
                          {"tid", track},
                          {"ts", static_cast<double>(first) / 1e3},
                          {"dur", static_cast<double>(length) / 1e3}};
    if (!details.is_null()) event["args"] = details;
    append(event);
  }

  void name(std::string_view kind, size_t process, size_t track, const std::string& words) {
    append({{"ph", "M"}, {"name", kind}, {"pid", process}, {"tid", track}, {"args", {{"name", words}}}});
  }

  void append(const ordered_json& event) {
    out_ += out_.size() == kHead.size() ? "\n" : ",\n";
    out_ += io::json_text(event, -1, io::JsonErrors::replace);
  }

  static constexpr std::string_view kHead = "{\"traceEvents\": [";

  std::string out_{kHead};
};

template <class Run>
std::string json_of_runs(std::span<const Run> runs) {
  TraceWriter writer;
  for (size_t r = 0; r < runs.size(); ++r) writer.add(r + 1, runs[r]);
  return std::move(writer).json();
}

}  // namespace

std::string trace_json(std::span<const TracedRun> runs) { return json_of_runs(runs); }
std::string lanes_json(std::span<const TracedLanes> runs) { return json_of_runs(runs); }

}  // namespace tessera::report
