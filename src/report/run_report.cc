#include "report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <sstream>

#include "base/memory.h"
#include "report/chart.h"
#include "report/phases.h"

namespace tessera::report {
namespace {

using Align = RichTable::Align;

constexpr size_t kMostCompared = 8;
constexpr size_t kMostCandidates = 100;

/// Candidates by predicted time, feasible ones first.
std::vector<const ops::PlanCandidate*> by_time(const std::vector<ops::PlanCandidate>& candidates) {
  std::vector<const ops::PlanCandidate*> order;
  for (const ops::PlanCandidate& candidate : candidates) order.push_back(&candidate);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    if (a->rejected.empty() != b->rejected.empty()) return a->rejected.empty();
    return a->total() < b->total();
  });
  return order;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

/// Descriptions of partitions without the words that all of them share, which would hide the differences.
std::vector<std::string> differences_of(const std::vector<std::string>& partitions) {
  std::vector<std::vector<std::string>> words;
  for (const std::string& partition : partitions) words.push_back(words_of(partition));
  for (const std::vector<std::string>& other : words)
    if (other.size() != words[0].size()) return partitions;
  std::vector<std::string> shorter(partitions.size());
  for (size_t w = 0; w < words[0].size(); ++w) {
    if (std::all_of(words.begin(), words.end(), [&](const auto& other) { return other[w] == words[0][w]; }))
      continue;
    for (size_t i = 0; i < words.size(); ++i) shorter[i] += (shorter[i].empty() ? "" : " ") + words[i][w];
  }
  return shorter;
}

/// Predicted times of the best candidates, phase by phase.
Html comparison_of(const std::vector<const ops::PlanCandidate*>& candidates) {
  BarChart bars;
  bars.frame.title = "The best candidates, by their differences, and their predicted times";
  bars.value.unit = Unit::seconds;
  bars.categories = phase_categories();
  std::vector<std::string> partitions;
  for (size_t i = 0; i < std::min(candidates.size(), kMostCompared); ++i)
    partitions.push_back(candidates[i]->partition);
  const std::vector<std::string> names = differences_of(partitions);
  for (size_t i = 0; i < names.size(); ++i)
    bars.bars.push_back({names[i], {candidates[i]->seconds.at.begin(), candidates[i]->seconds.at.end()}});
  return chart(bars);
}

}  // namespace

Html plan_of(const RunReport& report) {
  Html all = paragraph(fmt::format("{}; {} of {} tiles; predicted {}.", report.partition,
                                   count_text(report.tiles_used), count_text(report.run.tiles),
                                   value_text(report.predicted_seconds, Unit::seconds)));
  RichTable table({{"partition", Align::left}, {"predicted"}, {"fullest tile"}, {"verdict", Align::left}});
  const std::vector<const ops::PlanCandidate*> order = by_time(report.candidates);
  for (size_t i = 0; i < std::min(order.size(), kMostCandidates); ++i)
    table.add({order[i]->partition, value_text(order[i]->total(), Unit::seconds),
               base::bytes_text(order[i]->max_tile_bytes),
               order[i]->rejected.empty() ? "chosen" : order[i]->rejected},
              order[i]->rejected.empty());
  if (order.empty()) return all;
  const std::string shown =
      order.size() > kMostCandidates ? fmt::format(", the best {} shown", kMostCandidates) : "";
  if (order.size() > 1) all += comparison_of(order);
  return all + folded(fmt::format("{} candidates{}, and why they were rejected", order.size(), shown),
                      table.html());
}

Html passes_of(const RunSummary& run) {
  if (run.passes.empty()) return {};
  const double total = std::accumulate(run.passes.begin(), run.passes.end(), 0.0,
                                       [](double sum, const PassRecord& pass) { return sum + pass.seconds; });
  RichTable table({{"pass", Align::left}, {"did", Align::left}, {"took"}, {"", Align::left}});
  for (const PassRecord& pass : run.passes)
    table.add({pass.name, pass.did, value_text(pass.seconds, Unit::seconds),
               share_bar(total > 0 ? pass.seconds / total : 0, 0)});
  return folded(fmt::format("Compiler passes, {}", value_text(total, Unit::seconds)), table.html());
}

Html figures_of(const RunSummary& run) {
  if (run.figures.empty()) return {};
  RichTable table({{"figure", Align::left}, {"value"}, {"unit", Align::left}, {"source", Align::left}});
  for (const machine::Figure& figure : run.figures)
    table.add({figure.name, fmt::format("{:.6g}", figure.value), figure.unit, figure.source});
  return folded(fmt::format("Figures of {}, with sources", run.machine), table.html());
}

/// The work of each chip and each link of a machine of several chips.
Html chips_of(const RunSummary& run) {
  RichTable chips(
      {{"chip"}, {"time"}, {"computing"}, {"exchanging"}, {"waiting"}, {"memory"}, {"fullest tile"}});
  for (const ChipSummary& chip : run.chips) {
    const auto of = [&](std::initializer_list<program::Phase> phases) {
      double seconds = 0;
      for (const program::Phase phase : phases) seconds += chip.seconds[phase];
      return value_text(seconds, Unit::seconds);
    };
    chips.add({fmt::format("{}", chip.chip), value_text(chip.seconds.total(), Unit::seconds),
               of({program::Phase::compute, program::Phase::reduce, program::Phase::rearrange,
                   program::Phase::control}),
               of({program::Phase::exchange}), of({program::Phase::sync}), base::bytes_text(chip.bytes),
               base::bytes_text(chip.fullest_tile_bytes)});
  }
  if (run.links.empty()) return chips.html();
  RichTable links({{"link", Align::left}, {"carries"}, {"busy"}});
  for (const LinkSummary& link : run.links)
    links.add({fmt::format("chip {} to {}", link.from, link.to), base::bytes_text(link.bytes),
               value_text(link.seconds, Unit::seconds)});
  return chips.html() + links.html();
}

Html section_of(const RunReport& report) {
  Html all;
  if (!report.figures.empty()) all += key_figures(report.figures);
  if (!report.remark.empty()) all += paragraph(report.remark);
  if (!report.run.steps.empty()) all += subheading("Schedule") + schedule_of(report.run);
  if (!report.run.chips.empty()) all += subheading("Chips") + chips_of(report.run);
  if (report.run.memory.total_bytes != 0) all += subheading("Memory") + memory_of(report.run);
  if (!report.partition.empty()) all += subheading("Plan") + plan_of(report);
  return all + passes_of(report.run) + figures_of(report.run);
}

Table passes_table(std::span<const PassRecord> passes) {
  Table table({"pass", "took", "did"}, {0, 2});
  for (const PassRecord& pass : passes) table.add({pass.name, seconds_text(pass.seconds), pass.did});
  return table;
}

}  // namespace tessera::report
