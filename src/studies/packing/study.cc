#include "studies/packing/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "report/axis.h"
#include "report/chart.h"
#include "report/pack_result.h"
#include "studies/common/json.h"
#include "studies/packing/rows.h"
#include "studies/packing/training.h"

namespace tessera::studies::packing {
namespace {

using pack::Algorithm;
using report::Html;

Result run_study(const pack::Histogram& lengths, const Row& row, double time_limit) {
  const pack::Packing packing = pack::plan(lengths, {.algorithm = row.algorithm,
                                                     .max_per_pack = row.depth,
                                                     .certify = row.algorithm == Algorithm::best,
                                                     .time_limit = time_limit});
  Result result;
  const auto enter = [&](const std::string& name, auto value) {
    result.values[name] = static_cast<double>(value);
  };
  enter("packs", packing.packs());
  enter("sequences", packing.sequences);
  enter("tokens", packing.tokens);
  enter("padding", packing.padding());
  enter("efficiency", packing.efficiency());
  enter("packing_factor", packing.packing_factor());
  enter("lower_bound", packing.lower_bound());
  enter("strategies", packing.strategies.size());
  enter("cut_short", packing.cut_short);
  enter("seconds", packing.seconds);
  const std::vector<uint64_t> depths = packing.depths();
  for (size_t depth = 1; depth < depths.size(); ++depth)
    if (depths[depth] != 0) enter(fmt::format("packs_of_{}", depth), depths[depth]);
  return result;
}

/// The packings of a data set that a study has.
class Packings {
 public:
  Packings(const Study& study, const DataSet& set)
      : study_(study), set_(set), lengths_(lengths_of(study.request, set)) {}

  static std::string key_of(const Request& request, const pack::Histogram& lengths, const Row& row) {
    const std::string limit = request.time_limit > 0 ? fmt::format(", at most {} s", request.time_limit) : "";
    return fmt::format("{}, {}{}", row.name(), name_of(lengths), limit);
  }

  const pack::Histogram& lengths() const { return lengths_; }
  const Result* find(const Row& row) const {
    const Part* host = study_.host();
    return host == nullptr ? nullptr : host->find(set_.section, key_of(study_.request, lengths_, row));
  }
  std::optional<double> published(const Row& row, const char* column) const {
    return study_.published.number(kTable, published_name(set_, row), column);
  }
  /// The best lower bound for a depth that any algorithm has proven.
  double lower_bound(uint32_t depth) const {
    double most = 0;
    for (const Row& row : rows_of(set_))
      if (const Result* result = find(row); result != nullptr && row.depth == depth)
        most = std::max(most, *result->value("lower_bound"));
    return most;
  }

 private:
  const Study& study_;
  const DataSet& set_;
  pack::Histogram lengths_;
};

Figure::Entry study_number(std::optional<double> value, const char* format) {
  return {value ? fmt::format(fmt::runtime(format), *value) : ""};
}

Figure study_figure_of(const Study& study, const DataSet& set) {
  const Packings packings(study, set);
  Figure figure{fmt::format("{}: {} sequences with {} tokens in packs of {}", set.name,
                            report::count_text(packings.lengths().sequences()),
                            report::count_text(packings.lengths().tokens()), set.max_length),
                "The lower bound and the gap of a depth hold for all algorithms; best finds them by column "
                "generation.",
                {"algorithm", "depth", "packs", "published", "efficiency", "published", "factor", "published",
                 "lower bound", "gap", "time", "speed-up, published"}};
  for (const Row& row : rows_of(set)) {
    const Result* result = packings.find(row);
    if (result == nullptr) continue;
    const double bound = packings.lower_bound(row.depth), gap = *result->value("packs") - bound;
    const auto percent = [&](std::optional<double> efficiency, const char* format) {
      return study_number(efficiency ? std::optional(100 * *efficiency) : std::nullopt, format);
    };
    figure.rows.push_back({{row.depth == 1 ? "none" : std::string(name_of(row.algorithm))},
                           {report::depth_text(row.depth)},
                           study_number(result->value("packs"), "{:.0f}"),
                           study_number(packings.published(row, "packs"), "{:.0f}"),
                           percent(result->value("efficiency"), "{:.3f} %"),
                           percent(packings.published(row, "efficiency"), "{:.2f} %"),
                           study_number(result->value("packing_factor"), "{:.3f}"),
                           study_number(packings.published(row, "packing_factor"), "{:.3f}"),
                           study_number(bound, "{:.0f}"),
                           {gap == 0 ? "optimal" : fmt::format("{:.0f}", gap)},
                           {report::value_text(*result->value("seconds"), report::Unit::seconds)},
                           study_number(packings.published(row, "speedup"), "{:.3f}")});
  }
  return figure;
}

/// How many `things` there are of each size from 1.
Html counts_chart(const char* title, const char* note, const char* x_label, const char* things,
                  const std::vector<double>& counts, const char* unit) {
  report::ColumnChart chart{.frame = {title, note}, .x_label = x_label, .first = 1};
  chart.y.label = things;
  chart.categories = {{things}};
  for (size_t size = 1; size < counts.size(); ++size)
    chart.columns.push_back(
        {{counts[size]},
         fmt::format("{} {} of {}{}", report::count_text(static_cast<uint64_t>(counts[size])), things, size,
                     unit)});
  return report::chart(chart);
}

/// Packs by number of sequences, for the best unlimited packing.
Html depths_chart(const Packings& packings) {
  const Result* best = packings.find({});
  if (best == nullptr) return {};
  std::vector<double> counts;
  for (const auto& [name, packs] : best->values) {
    if (!name.starts_with("packs_of_")) continue;
    const size_t depth = std::stoul(name.substr(9));
    counts.resize(std::max(counts.size(), depth + 1));
    counts[depth] = packs;
  }
  return counts_chart("Sequences per pack",
                      "Packs of the best packing without a limit, by the number of their sequences.",
                      "sequences per pack", "packs", counts, "");
}

Html efficiency_chart(const Packings& packings, const DataSet& set) {
  report::LineChart chart;
  chart.frame = {"Efficiency over depth",
                 "Fraction of tokens that are not padding, by the maximum number of sequences per pack. The "
                 "bound is proven: no packing lies above it."};
  chart.x = {.label = "maximum number of sequences per pack", .growth = report::Growth::log2};
  chart.y = {.label = "efficiency", .unit = report::Unit::share};
  report::Series bound{.name = "upper bound", .markers = false, .reference = true};
  report::Series published{.name = "published (SPFHP)", .line = false, .reference = true};
  std::map<Algorithm, report::Series> ours;
  for (const Row& row : rows_of(set)) {
    const Result* result = packings.find(row);
    if (result == nullptr || row.depth == 0) continue;
    const double efficiency = *result->value("efficiency"), packs = *result->value("packs");
    const auto theirs = packings.published(row, "efficiency");
    if (theirs && row.algorithm == Algorithm::spfhp) published.points.push_back({double(row.depth), *theirs});
    if (row.algorithm == Algorithm::best || row.depth == 1) {
      const double least = packings.lower_bound(row.depth);
      bound.points.push_back({double(row.depth), efficiency * packs / least,
                              fmt::format("at least {} packs", report::count_text(uint64_t(least)))});
    }
    if (row.depth == 1) continue;
    ours[row.algorithm].name = name_of(row.algorithm);
    ours[row.algorithm].points.push_back(
        {double(row.depth), efficiency,
         fmt::format("{}: {} packs, {:.3f} %", row.name(), report::count_text(uint64_t(packs)),
                     100 * efficiency)});
  }
  for (auto& [algorithm, series] : ours) chart.series.push_back(std::move(series));
  chart.series.push_back(std::move(published));
  chart.series.push_back(std::move(bound));
  return report::chart(chart);
}

template <size_t at>
std::vector<Cell> study_cells(const machine::Machine& machine, const Request& request) {
  const DataSet& set = data_sets()[at];
  const pack::Histogram lengths = lengths_of(request, set);
  std::vector<Cell> all;
  if (machine.kind != machine::Kind::host) return all;
  for (const Row& row : rows_of(set))
    all.push_back(
        {Packings::key_of(request, lengths, row), row.algorithm == Algorithm::best ? 3 : 0.3,
         [=, limit = request.time_limit](const Setting&) { return run_study(lengths, row, limit); }});
  return all;
}

template <size_t at>
std::vector<Figure> study_figures(const Study& study) {
  return {study_figure_of(study, data_sets()[at])};
}

template <size_t at>
Html study_charts(const Study& study) {
  const Packings packings(study, data_sets()[at]);
  const auto& counts = packings.lengths().counts;
  return counts_chart("Lengths", "Sequences of each length before packing.", "tokens", "sequences",
                      {counts.begin(), counts.end()}, " tokens") +
         efficiency_chart(packings, data_sets()[at]) + depths_chart(packings);
}

template <size_t at>
std::vector<Comparison> study_comparisons(const Study& study) {
  const DataSet& set = data_sets()[at];
  const Packings packings(study, set);
  std::vector<Comparison> all;
  for (const Row& row : rows_of(set))
    for (const char* what : {"packs", "efficiency", "packing_factor"})
      if (const Result* result = packings.find(row))
        all.push_back({.what = fmt::format("{}: {}", row.name(), what),
                       .unit = "",
                       .published = packings.published(row, what),
                       .ours = result->value(what),
                       .group = fmt::format("{}: {}", set.name, what)});
  return all;
}

template <size_t at>
Section study_section() {
  const DataSet& set = data_sets()[at];
  return {set.section, set.name, study_cells<at>, study_figures<at>, study_charts<at>, study_comparisons<at>};
}

bool has_row(std::string_view /*table*/, const std::string& name) {
  for (const DataSet& set : data_sets())
    for (const Row& row : rows_of(set))
      if (name == published_name(set, row)) return true;
  return false;
}

void load(const std::string& folder, Request& request) {
  for (const DataSet& set : data_sets())
    request.lengths.push_back(
        pack::read_histogram(fmt::format("{}/{}", folder, set.file), set.max_length).histogram);
}

}  // namespace

const Paper& paper() {
  static const std::vector<Section> sections = {study_section<0>(), study_section<1>(), training_section()};
  static const Paper paper{
      .name = "packing",
      .title = "Sequence packing",
      .about = "Sequence packing of Wikipedia and SQuAD 1.1",
      .source =
          "M. M. Krell, SW/HW co-optimization on the IPU: an MLPerf case study; Efficient Sequence "
          "Packing without Cross-contamination, arXiv 2107.02027.",
      .sections = sections,
      .published = kPackings,
      .data = PaperData{.what = "all packings",
                        .contents = "lengths/wikipedia-512.csv and lengths/squad1.1-384.csv",
                        .is_needed = [](const Request&, std::span<const machine::Machine>) { return true; },
                        .load = load,
                        .is_all = true},
      .machines = "host",
      .has_machines = false,
      .has_verification = false,
      .full = "Train all layers of BERT-base, which takes about ten minutes",
      .has_row = has_row,
      .examples = "  tessera reproduce packing --data data --html packing.html"};
  return paper;
}

}  // namespace tessera::studies::packing
