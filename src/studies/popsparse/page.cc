// The page of `tessera reproduce popsparse`.
#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "studies/common/charts.h"
#include "studies/popsparse/tables.h"

namespace tessera::studies::popsparse {
namespace {

using report::Growth;
using report::Html;
using report::Series;

report::LineChart rate_chart(std::string title, std::string note, std::string x) {
  report::LineChart chart;
  chart.frame = {std::move(title), std::move(note), report::kHalf};
  chart.x = logarithmic(std::move(x), Growth::log2);
  chart.y = logarithmic("TFLOP/s", Growth::log10);
  return chart;
}

/// TFLOP/s at the best n; a `share` of the operations counts.
void add_rate(Pair& pair, double x, const Study& study, const Operand& operand, const std::string& where,
              double share = 1) {
  const auto best = study.best(operand);
  const auto published = study.published_rate(operand);
  pair.add(x, best ? std::optional(best->tflops * share) : std::nullopt,
           published ? std::optional(*published * share) : std::nullopt, where);
}

Html dense_chart(const Study& study, const Precision& precision) {
  report::LineChart chart = rate_chart(fmt::format("Dense, {}", ops::name_of(precision)), "", "n");
  size_t colour = 0;
  for (uint32_t size : study.sizes()) {
    Pair pair(fmt::format("m = {}", size), colour++);
    for (const auto& [cell, result] : study.outcome().results)
      if (cell.operand == Operand{Mode::dense, precision, size, 1, 1})
        pair.add(cell.n, result.value("tflops"), std::nullopt, fmt::format("n = {}", cell.n));
    if (pair.ours.points.empty()) continue;
    for (uint32_t n : study.published_dense_columns(precision, size))
      pair.add(n, std::nullopt, study.published_dense(precision, size, n), fmt::format("n = {}", n));
    std::move(pair).put_into(chart);
  }
  return chart.series.empty() ? Html{} : report::chart(chart);
}

Html density_chart(const Study& study) {
  report::LineChart chart = rate_chart(
      fmt::format("Density, {}, m = {}", ops::name_of(study.precision()), study.size()),
      "Each at its best n. Only operations on stored elements count, so dense falls with the density.",
      "density");
  size_t colour = 0;
  std::set<uint32_t> blocks;  // the smallest and the largest, as in the paper
  if (!study.blocks().empty()) blocks = {study.blocks().front(), study.blocks().back()};
  const auto add = [&](Pair pair, Mode mode, uint32_t block, size_t least) {
    for (double density : study.densities())
      add_rate(pair, density, study, study.operand(mode, study.size(), block, density),
               "d = " + density_text(density), mode == Mode::dense ? density : 1);
    if (pair.ours.points.size() >= least) std::move(pair).put_into(chart);
  };
  for (Mode mode : {Mode::static_sparse, Mode::dynamic_sparse})
    for (uint32_t block : blocks)
      add(Pair(fmt::format("{} b = {}", ops::name_of(mode), block), colour++), mode, block, 2);
  add(Pair("dense", report::kGrey), Mode::dense, 1, 0);
  return report::chart(chart);
}

Html block_chart(const Study& study) {
  report::LineChart chart =
      rate_chart(fmt::format("Block size, {}, m = {}, d = {}", ops::name_of(study.precision()), study.size(),
                             density_text(study.density())),
                 "Each at its best n.", "block size");
  size_t colour = 0;
  for (Mode mode : {Mode::static_sparse, Mode::dynamic_sparse}) {
    Pair pair(std::string(ops::name_of(mode)), colour++);
    for (uint32_t block : study.blocks())
      add_rate(pair, block, study, study.operand(mode, study.size(), block, study.density()),
               fmt::format("b = {}", block));
    std::move(pair).put_into(chart);
  }
  return report::chart(chart);
}

Html size_chart(const Study& study) {
  report::LineChart chart =
      rate_chart(fmt::format("Feature size, {}, b = {}, d = {}", ops::name_of(study.precision()),
                             study.block(), density_text(study.density())),
                 "Each at its best n. Dense counts every operation.", "m = k");
  size_t colour = 0;
  for (Mode mode : {Mode::static_sparse, Mode::dynamic_sparse, Mode::dense}) {
    Pair pair(std::string(ops::name_of(mode)), mode == Mode::dense ? report::kGrey : colour++);
    for (uint32_t size : study.sizes())
      add_rate(pair, size, study, study.operand(mode, size, study.block(), study.density()),
               fmt::format("m = {}", size));
    std::move(pair).put_into(chart);
  }
  return report::chart(chart);
}

/// Measured speed-ups over those predicted by the law, with the line where both are equal.
Html law_chart(const Study& study) {
  const auto fit = study.law(Mode::static_sparse);
  if (!fit) return {};
  report::LineChart chart;
  chart.frame = {
      "Static over dense against the law",
      fmt::format("Each at its best n. Fitted here: {}. Published: {}; its marks show its predictions for "
                  "the same products.",
                  law_text(fit->law), law_text(published_law()))};
  chart.x = logarithmic("the law, fitted to these points", Growth::log2);
  chart.y = logarithmic("speed-up", Growth::log2);
  Series same{.name = "the law", .colour = report::kGrey, .markers = false};
  Series published{.name = "the published law", .colour = report::kGrey, .line = false, .reference = true};
  std::vector<Series> ours;
  double least = 1, most = 1;
  for (uint32_t block : study.blocks()) {
    Series series{.name = fmt::format("b = {}", block), .colour = ours.size(), .line = false};
    for (const PowerLawSample& sample : study.law_samples(Mode::static_sparse)) {
      if (sample.factors[2] != block) continue;
      const double x = fit->law.at(sample.factors);
      least = std::min(least, x), most = std::max(most, x);
      const std::string where =
          fmt::format("m = {}, d = {}, b = {}", sample.factors[0], density_text(sample.factors[1]), block);
      series.points.push_back(
          {x, sample.value, fmt::format("{}: {:.2f}, predicted {:.2f}", where, sample.value, x)});
      const double theirs = published_law().at(sample.factors);
      published.points.push_back({x, theirs, fmt::format("{}: {:.2f} by the published law", where, theirs)});
    }
    ours.push_back(std::move(series));
  }
  same.points = {{least, least}, {most, most}};
  chart.series = {std::move(same), std::move(published)};  // below ours
  for (Series& series : ours) chart.series.push_back(std::move(series));
  return report::chart(chart);
}

Html dense_section(const Study& study) {
  std::vector<Html> charts;
  for (const Precision& precision : study.precisions())
    if (Html chart = dense_chart(study, precision); !chart.empty()) charts.push_back(std::move(chart));
  return report::side_by_side(charts) + html_of(dense_figure(study));
}

}  // namespace

std::string page(const Study& study) {
  const machine::Machine& machine = study.outcome().machine;
  const bool host = machine.kind == machine::Kind::host;
  report::Page page("PopSparse on " + machine.name,
                    host ? "Sparse and dense products, measured on this computer"
                         : "Sparse and dense products, modelled and accounted cycle by cycle");
  const auto add = [&](std::string heading, Html content) {
    if (!content.empty()) page.add_section(std::move(heading), std::move(content));
  };
  add("Sparse over dense", html_of(table_3(study)) + html_of(break_even_figure(study)));
  add("The law", law_chart(study) + html_of(law_figure(study)));
  add("Scaling", report::side_by_side({density_chart(study), block_chart(study), size_chart(study)}) +
                     html_of(density_figure(study)) + html_of(block_figure(study)) +
                     html_of(size_figure(study)));
  add("Dense", dense_section(study));
  Html grid;
  for (const Figure& figure : grid_figures(study, study.precision())) grid += html_of(figure);
  add("Grid of speed-ups", grid);
  add("Accuracy of the model", html_of(deviation_figure(study)));
  Html about = report::paragraph(
      "Published numbers are in brackets, in plots hollow marks and dashed lines: Z. Li et al., "
      "PopSparse: "
      "Accelerated Block Sparse Matrix Multiplication on IPU, 2023, measured on one Bow IPU; those of "
      "figures are read "
      "off. Green is faster than dense, red slower.");
  if (const std::string notes = notes_of(study); !notes.empty()) about += report::paragraph(notes);
  page.add_section("Source", about);
  return page.html();
}

}  // namespace tessera::studies::popsparse
