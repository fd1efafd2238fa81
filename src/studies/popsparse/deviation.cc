// How far the model of a tiled machine is from the published measurements, and what the free planner gains.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "studies/popsparse/tables.h"

namespace tessera::studies::popsparse {
namespace {

using Entry = Figure::Entry;

double percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(fraction * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

/// Deviations of one published table.
class Deviations {
 public:
  explicit Deviations(std::string name) : name_(std::move(name)) {}

  /// No number: it does not fit.
  void add(std::optional<double> model, std::optional<double> published) {
    ++(published ? full_ : empty_);
    if (published && !model) ++refused_;
    if (!published && !model) ++found_;
    if (model && published) logarithms_.push_back(std::log(*model / *published));
  }

  void add_row(Figure& figure) const {
    if (full_ + empty_ == 0) return;
    std::vector<double> sizes;
    double sum = 0;
    for (double logarithm : logarithms_) {
      sizes.push_back(std::abs(logarithm));
      sum += logarithm;
    }
    const auto number = [&](double value, const char* format) {
      return Entry{sizes.empty() ? "-" : fmt::format(fmt::runtime(format), value)};
    };
    figure.rows.push_back({{name_},
                           {std::to_string(full_ + empty_)},
                           number(percentile(sizes, 0.5), "{:.3f}"),
                           number(percentile(sizes, 0.9), "{:.3f}"),
                           number(percentile(sizes, 1), "{:.3f}"),
                           number(sum / static_cast<double>(std::max<size_t>(1, sizes.size())), "{:+.3f}"),
                           {fmt::format("{} of {}", found_, empty_)},
                           {fmt::format("{} of {}", refused_, full_)}});
  }

 private:
  std::string name_;
  int full_ = 0;
  int empty_ = 0;
  int refused_ = 0;
  int found_ = 0;
  std::vector<double> logarithms_;
};

void compare_dense(const Study& study, Figure& figure) {
  Deviations deviations("dense TFLOP/s (figure 2)");
  for (const DenseCell& published : study.published_dense_cells()) {
    const Cell cell{{Mode::dense, {published.type}, published.size, 1, 1}, published.n};
    if (study.find(cell) != nullptr) deviations.add(study.tflops(cell), published.tflops);
  }
  deviations.add_row(figure);
}

void compare_ratios(const Study& study, Figure& figure) {
  Deviations deviations("static over dense (figure 7)");
  for (const RatioCell& published : study.published_ratio_cells()) {
    const Cell cell{
        {Mode::static_sparse, {Type::f16}, published.size, published.block, 1.0 / published.inverse_density},
        published.n};
    if (study.find(cell) != nullptr) deviations.add(study.speedup(cell), published.speedup);
  }
  deviations.add_row(figure);
}

void compare_best(const Study& study, Mode mode, Figure& figure) {
  Deviations speedups(fmt::format("{} over dense, best over n (table 3)", ops::name_of(mode)));
  Deviations rates(fmt::format("{} TFLOP/s, best over n (figures 3a, 4a)", ops::name_of(mode)));
  for (const Precision& precision : study.precisions())
    for (uint32_t block : study.blocks())
      for (double density : study.densities()) {
        const Operand operand{mode, precision, study.size(), block, density};
        const auto best = study.best(operand);
        if (!best) continue;
        if (const auto published = study.published_best_speedup(operand))
          speedups.add(study.best_speedup(operand), published);
        if (const auto published = study.published_rate(operand)) rates.add(best->tflops, published);
      }
  speedups.add_row(figure);
  rates.add_row(figure);
}

}  // namespace

Figure deviation_figure(const Study& study) {
  Figure figure{"Distance of the model from the published numbers",
                "|ln(model / published)|: 0.1 is a deviation of 10 %.",
                {"table", "cells", "median |ln|", "90th percentile", "largest", "mean ln", "found not to fit",
                 "rejected though they fit"}};
  if (study.outcome().machine.kind == machine::Kind::host) return figure;
  compare_dense(study, figure);
  compare_ratios(study, figure);
  compare_best(study, Mode::static_sparse, figure);
  compare_best(study, Mode::dynamic_sparse, figure);
  return figure;
}

Figure gain_figure(const Outcome& published, const Outcome& free) {
  Figure figure{"Speed-up of the free planner over the published one",
                "",
                {"mode", "products", "median", "90th percentile", "minimum", "more fit"}};
  for (Mode mode : ops::kModes) {
    std::vector<double> gains;
    int more_fit = 0;
    for (const auto& [cell, result] : published.results) {
      const auto other = free.results.find(cell);
      if (cell.operand.mode != mode || other == free.results.end()) continue;
      const auto seconds = result.value("seconds"), freely = other->second.value("seconds");
      if (!freely) continue;
      if (seconds)
        gains.push_back(*seconds / *freely);
      else
        ++more_fit;
    }
    if (gains.empty()) continue;
    figure.rows.push_back({{std::string(ops::name_of(mode))},
                           {std::to_string(gains.size())},
                           {fmt::format("{:.2f}", percentile(gains, 0.5))},
                           {fmt::format("{:.2f}", percentile(gains, 0.9))},
                           {fmt::format("{:.2f}", percentile(gains, 0))},
                           {std::to_string(more_fit)}});
  }
  return figure;
}

}  // namespace tessera::studies::popsparse
