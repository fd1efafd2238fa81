#include "studies/spmm/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/memory.h"
#include "io/atomic_file.h"
#include "report/chart.h"
#include "report/phases.h"
#include "report/run_report.h"
#include "report/trace.h"
#include "studies/spmm/show.h"

namespace tessera::studies::spmm {
namespace {

using report::KeyFigure;
using report::Unit;
using report::value_text;

/// "bow: static, density 0.0625, b = 16, f16, n = 256"
std::string title_of(const SpmmResult& r) {
  const bool dense = r.what.mode == Mode::dense;
  const std::string weight =
      dense ? "dense"
            : fmt::format("{}, density {:.4g}, b = {}", name_of(r.what.mode), r.density, r.what.block);
  const std::string product =
      r.what.product == ProductKind::forward ? "" : fmt::format("{} of ", name_of(r.what.product));
  return fmt::format("{}: {}{}, {}, n = {}", machine_title(r.what), product, weight,
                     name_of(r.what.precision), r.what.n);
}

KeyFigure time_figure(const SpmmResult& r) {
  if (r.cycles)
    return {"modelled time", value_text(*r.seconds, Unit::seconds), value_text(*r.cycles, Unit::cycles)};
  return {r.run && r.run->measured ? "time, median of the runs" : "predicted time",
          value_text(*r.seconds, Unit::seconds),
          fmt::format("predicted {}", value_text(r.predicted_seconds, Unit::seconds))};
}

KeyFigure rate_figure(const SpmmResult& r) {
  const double gflops = *r.useful_gflops();
  const std::string rate =
      gflops >= 1000 ? fmt::format("{:.3g} TFLOP/s", gflops / 1000) : fmt::format("{:.3g} GFLOP/s", gflops);
  return {"useful arithmetic", rate,
          r.peak_fraction ? fmt::format("{:.0f} % of the peak", 100 * *r.peak_fraction)
                          : fmt::format("{} non-zeros", report::count_text(r.nnz))};
}

KeyFigure memory_figure(const SpmmResult& r) {
  const auto share =
      static_cast<double>(r.memory.max_tile_bytes) / static_cast<double>(r.memory.tile_capacity_bytes);
  const bool tiled = r.run && r.run->kind == machine::Kind::tiled;
  return {tiled ? "fullest tile" : "memory",
          tiled ? fmt::format("{:.1f} %", 100 * share) : base::bytes_text(r.memory.max_tile_bytes),
          fmt::format("{} of {}", base::bytes_text(r.memory.max_tile_bytes),
                      base::bytes_text(r.memory.tile_capacity_bytes)),
          !r.fits};
}

KeyFigure verdict_figure(const SpmmResult& r) {
  return {"compared with float64", *r.verified ? "verified" : "WRONG",
          fmt::format("error {:.1e} of {:.1e}", *r.max_rel_error, *r.tolerance), !*r.verified};
}

std::vector<KeyFigure> figures_of(const SpmmResult& r) {
  std::vector<KeyFigure> figures;
  if (r.seconds) figures.push_back(time_figure(r));
  if (r.useful_gflops()) figures.push_back(rate_figure(r));
  if (r.speedup())
    figures.push_back({"speed-up over dense", fmt::format("{:.2f} ×", *r.speedup()),
                       fmt::format("dense {}", value_text(*r.dense_seconds, Unit::seconds))});
  if (r.failure.empty()) figures.push_back(memory_figure(r));
  if (r.verified) figures.push_back(verdict_figure(r));
  return figures;
}

std::string remark_on(const SpmmResult& r) {
  if (!r.failure.empty()) return "No result: " + r.failure;
  return r.fits ? "" : overflow(r);
}

report::Html section_of(const SpmmResult& r) {
  report::RunReport section;
  section.title = title_of(r);
  section.figures = figures_of(r);
  section.remark = remark_on(r);
  if (r.run) section.run = *r.run;
  section.partition = r.partition;
  section.tiles_used = r.tiles_used;
  section.predicted_seconds = r.predicted_seconds;
  section.candidates = r.candidates;
  return report::section_of(section);
}

/// The times of all results, one chart per machine, because different machines differ by orders of magnitude.
report::Html comparison(std::span<const SpmmResult> results) {
  std::vector<report::BarChart> charts;
  for (const SpmmResult& r : results) {
    if (!r.seconds) continue;
    const std::string machine = machine_title(r.what);
    if (charts.empty() || charts.back().frame.title != machine) {
      charts.emplace_back();
      charts.back().frame.title = machine;
      charts.back().value.unit = Unit::seconds;
      charts.back().categories = report::phase_categories();
    }
    charts.back().bars.push_back({title_of(r).substr(machine.size() + 2),
                                  {r.phases.at.begin(), r.phases.at.end()},
                                  value_text(*r.seconds, Unit::seconds)});
  }
  report::Html all;
  for (const report::BarChart& chart : charts) all += report::chart(chart);
  return all;
}

std::string trace_of(std::span<const SpmmResult> results) {
  std::vector<report::TracedRun> runs;
  for (const SpmmResult& r : results)
    if (r.run) runs.push_back({title_of(r), &*r.run});
  return report::trace_json(runs);
}

}  // namespace

std::string page_of(const SpmmRequest& request, std::span<const SpmmResult> results) {
  const std::string weight = request.weights.empty() ? "generated weights" : request.weights;
  const SpmmResult& first = results.front();
  const bool one_n =
      std::all_of(results.begin(), results.end(), [&](const auto& r) { return r.what.n == first.what.n; });
  report::Page page(
      fmt::format("{} × {} times {} columns", first.m, first.k, one_n ? std::to_string(first.what.n) : "n"),
      fmt::format("tessera spmm, {}", weight));
  if (results.size() > 1)
    page.add_section("All results", report::table(table(results)) + comparison(results));
  for (const SpmmResult& r : results) page.add_section(title_of(r), section_of(r));
  return page.html();
}

void require_writable(const SpmmRequest& request) {
  for (const std::string& file : {request.report, request.trace})
    if (!file.empty()) io::require_writable(file);
}

void write_files(const SpmmRequest& request, std::span<const SpmmResult> results) {
  if (!request.report.empty()) io::write_text(request.report, page_of(request, results));
  if (!request.trace.empty()) io::write_text(request.trace, trace_of(results));
}

}  // namespace tessera::studies::spmm
