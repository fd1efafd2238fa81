// The page of `tessera reproduce packing`.
#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/chart.h"
#include "studies/packing/study.h"

namespace tessera::studies::packing {
namespace {

using report::Html;

const report::PackResult* find(const Study& study, std::string_view algorithm, uint32_t depth) {
  for (const Reproduced& row : study.rows)
    if (row.ours.algorithm == algorithm && row.ours.max_per_pack == depth) return &row.ours;
  return nullptr;
}

Html lengths_chart(const Study& study) {
  report::ColumnChart chart;
  chart.frame.title = "Lengths";
  chart.frame.note = "Sequences of each length before packing.";
  chart.x_label = "tokens";
  chart.y.label = "sequences";
  chart.categories = {{"sequences"}};
  const std::vector<uint64_t>& counts = study.histogram.counts;
  chart.first = 1;
  for (size_t length = 1; length < counts.size(); ++length)
    chart.columns.push_back(
        {{static_cast<double>(counts[length])},
         fmt::format("{} sequences of {} tokens", report::count_text(counts[length]), length)});
  return report::chart(chart);
}

/// Efficiency over depth; unlimited depth is at the right, after the largest.
Html efficiency_chart(const Study& study) {
  report::LineChart chart;
  chart.frame.title = "Efficiency over depth";
  chart.frame.note =
      "Fraction of tokens that are not padding, by the maximum number of sequences per pack.  The bound is "
      "proven: no "
      "packing lies above it.";
  chart.x = {.label = "maximum number of sequences per pack", .growth = report::Growth::log2};
  chart.y = {.label = "efficiency", .unit = report::Unit::share};
  report::Series bound{.name = "upper bound", .markers = false, .reference = true};
  report::Series published{.name = "published (SPFHP)", .line = false, .reference = true};
  std::vector<report::Series> ours;
  for (const Reproduced& row : study.rows) {
    const report::PackResult& r = row.ours;
    if (r.max_per_pack == 0) continue;
    const double depth = r.max_per_pack;
    const std::string name = r.algorithm == "none" ? "" : r.algorithm;
    if (row.published && row.published->efficiency && name != "nnlshp")
      published.points.push_back({depth, *row.published->efficiency, ""});
    if (r.algorithm == "best" || r.algorithm == "none")
      bound.points.push_back(
          {depth, r.efficiency() * static_cast<double>(r.packs) / static_cast<double>(r.lower_bound),
           fmt::format("at least {} packs", report::count_text(r.lower_bound))});
    if (name.empty()) continue;
    auto series =
        std::find_if(ours.begin(), ours.end(), [&](const report::Series& s) { return s.name == name; });
    if (series == ours.end()) series = ours.insert(ours.end(), report::Series{.name = name});
    series->points.push_back({depth, r.efficiency(),
                              fmt::format("{}, depth {}: {} packs, {:.3f} %", name, r.max_per_pack,
                                          report::count_text(r.packs), 100 * r.efficiency())});
  }
  chart.series = std::move(ours);
  chart.series.push_back(std::move(published));
  chart.series.push_back(std::move(bound));
  return report::chart(chart);
}

/// Packs by number of sequences, for the best unlimited packing.
Html depths_chart(const Study& study) {
  const report::PackResult* best = find(study, "best", 0);
  if (best == nullptr) return {};
  report::ColumnChart chart;
  chart.frame.title = "Sequences per pack";
  chart.frame.note = "Packs of the best packing without a limit, by the number of their sequences.";
  chart.x_label = "sequences per pack";
  chart.y.label = "packs";
  chart.categories = {{"packs"}};
  chart.first = 1;
  for (size_t depth = 1; depth < best->depths.size(); ++depth)
    chart.columns.push_back({{static_cast<double>(best->depths[depth])},
                             fmt::format("{} packs of {}", report::count_text(best->depths[depth]), depth)});
  return report::chart(chart);
}

Html results_table(const Study& study) {
  using Align = report::RichTable::Align;
  report::RichTable table({{"algorithm", Align::left},
                           {"depth"},
                           {"packs"},
                           {"published"},
                           {"efficiency"},
                           {"published"},
                           {"factor"},
                           {"published"},
                           {"lower bound"},
                           {"gap"},
                           {"time"},
                           {"speed-up, published"}});
  for (const Reproduced& row : study.rows) {
    const report::PackResult& r = row.ours;
    const Published p = row.published.value_or(Published{});
    const auto cell = [](const std::optional<double>& value, auto show) {
      return value ? show(*value) : std::string();
    };
    table.add({r.algorithm, r.max_per_pack == 0 ? "any" : std::to_string(r.max_per_pack),
               report::count_text(r.packs),
               cell(p.packs, [](double v) { return report::count_text(static_cast<uint64_t>(v)); }),
               fmt::format("{:.3f} %", 100 * r.efficiency()),
               cell(p.efficiency, [](double v) { return fmt::format("{:.2f} %", 100 * v); }),
               fmt::format("{:.3f}", r.packing_factor()),
               cell(p.packing_factor, [](double v) { return fmt::format("{:.3f}", v); }),
               report::count_text(r.lower_bound), r.gap() == 0 ? "optimal" : report::count_text(r.gap()),
               report::value_text(r.seconds, report::Unit::seconds),
               cell(p.speedup, [](double v) { return fmt::format("{:.3f}", v); })},
              r.algorithm == "best");
  }
  return table.html();
}

}  // namespace

std::string page(const std::vector<Study>& studies) {
  report::Page page("Sequence packing",
                    "Published packings of two data sets beside ours, with proven lower bounds on the packs");
  for (const Study& study : studies) {
    Html content = report::paragraph(fmt::format(
        "{} sequences with {} tokens in packs of {}.", report::count_text(study.histogram.sequences()),
        report::count_text(study.histogram.tokens()), study.histogram.max_length()));
    content += lengths_chart(study) + efficiency_chart(study) + depths_chart(study) + results_table(study);
    page.add_section(study.name, content);
  }
  page.add_section(
      "Source",
      report::paragraph("Published: M. M. Krell, SW/HW co-optimization on the IPU: an MLPerf case study; "
                        "Efficient Sequence Packing without Cross-contamination, arXiv 2107.02027. The "
                        "lower bound and the gap of a depth hold for all algorithms; best finds them by "
                        "column generation."));
  return page.html();
}

}  // namespace tessera::studies::packing
