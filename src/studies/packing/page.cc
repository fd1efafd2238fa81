// The page of `tessera reproduce packing`.
#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

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

/// How many `things` there are of each size from 1.
Html counts_chart(const char* title, const char* note, const char* x_label, const char* things,
                  std::span<const uint64_t> counts, const char* unit) {
  report::ColumnChart chart;
  chart.frame.title = title;
  chart.frame.note = note;
  chart.x_label = x_label;
  chart.y.label = things;
  chart.categories = {{things}};
  chart.first = 1;
  for (size_t size = 1; size < counts.size(); ++size)
    chart.columns.push_back(
        {{static_cast<double>(counts[size])},
         fmt::format("{} {} of {}{}", report::count_text(counts[size]), things, size, unit)});
  return report::chart(chart);
}

Html lengths_chart(const Study& study) {
  return counts_chart("Lengths", "Sequences of each length before packing.", "tokens", "sequences",
                      study.histogram.counts, " tokens");
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
  return counts_chart("Sequences per pack",
                      "Packs of the best packing without a limit, by the number of their sequences.",
                      "sequences per pack", "packs", best->depths, "");
}

Html results_table(const Study& study) {
  std::vector<report::RichTable::Column> columns = {{"algorithm", report::RichTable::Align::left}};
  for (const std::string& heading : table_head()) columns.push_back({heading});
  report::RichTable table(std::move(columns));
  for (const Reproduced& row : study.rows) {
    const std::vector<std::string> words = row_of(row, true);
    table.add({words.begin(), words.end()}, row.ours.algorithm == "best");
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
