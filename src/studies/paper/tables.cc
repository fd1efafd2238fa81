#include "studies/paper/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "studies/common/curves.h"

namespace tessera::studies {
namespace {

using Entry = Figure::Entry;

std::string bounds_text(const Comparison& c) {
  return c.least ? fmt::format("{:.2f} to {:.2f}", *c.least, *c.most) : "";
}

std::vector<Entry> row_of(const Section& section, const Comparison& c) {
  Entry ratio{"-"};
  if (const auto value = c.ratio()) {
    ratio.words = fmt::format("{:.2f}", *value);
    ratio.shade = -std::abs(shade_of(*value));
  }
  const auto near = c.is_near();
  return {{std::string(section.name)},
          {c.what},
          {c.unit},
          {fmt::format("{:.4g}", *c.published)},
          {c.ours ? fmt::format("{:.4g}", *c.ours) : "-"},
          std::move(ratio),
          {bounds_text(c)},
          {near ? (*near ? "yes" : "no") : ""},
          {c.remark}};
}

/// How far ours are from published ones.
struct Distances {
  size_t published = 0;   ///< numbers
  size_t impossible = 0;  ///< published as such
  size_t refused = 0;     ///< ours, of those with a number
  size_t found = 0;       ///< ours, of those published as impossible
  std::vector<double> logarithms{};

  void add(const Comparison& c) {
    (c.published ? published : impossible) += 1;
    if (!c.ours) (c.published ? refused : found) += 1;
    if (const auto ratio = c.ratio()) logarithms.push_back(std::log(*ratio));
  }

  std::vector<Entry> row(const std::string& name) const {
    std::vector<double> sizes;
    for (double logarithm : logarithms) sizes.push_back(std::abs(logarithm));
    const double mean = std::accumulate(logarithms.begin(), logarithms.end(), 0.0) /
                        static_cast<double>(std::max<size_t>(1, logarithms.size()));
    const auto number = [&](double value, const char* format) {
      return Entry{sizes.empty() ? "-" : fmt::format(fmt::runtime(format), value)};
    };
    return {{name},
            {std::to_string(published + impossible)},
            number(percentile(sizes, 0.5), "{:.3f}"),
            number(percentile(sizes, 0.9), "{:.3f}"),
            number(percentile(sizes, 1), "{:.3f}"),
            number(mean, "{:+.3f}"),
            {fmt::format("{} of {}", found, impossible)},
            {fmt::format("{} of {}", refused, published)}};
  }
};

template <class Visit>
void visit_comparisons(const Study& study, const Visit& visit) {
  for (const Section& section : sections_of(study.paper, study.request))
    if (section.comparisons != nullptr)
      for (const Comparison& c : section.comparisons(study)) visit(section, c);
}

}  // namespace

double percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto at = static_cast<size_t>(fraction * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

Figure distance_figure(const Study& study) {
  Figure figure{"Distance of the model from the published numbers",
                "|ln(model / published)|: 0.1 is a deviation of 10 %.",
                {"table", "cells", "median |ln|", "90th percentile", "largest", "mean ln", "found not to fit",
                 "rejected though they fit"}};
  std::map<std::string, Distances> groups;
  visit_comparisons(study, [&](const Section&, const Comparison& c) {
    const bool compares = c.published || c.published_as_impossible;
    if (!c.group.empty() && compares && !c.is_measured) groups[c.group].add(c);
  });
  for (const auto& [name, distances] : groups) figure.rows.push_back(distances.row(name));
  return figure;
}

Figure comparison_figure(const Study& study) {
  Figure figure{"Published numbers and ours",
                "",
                {"section", "number", "unit", "published", "ours", "ours/published", "meant to be", "is",
                 "why they differ"}};
  visit_comparisons(study, [&](const Section& section, const Comparison& c) {
    if (c.group.empty() && c.published && !c.is_in_table) figure.rows.push_back(row_of(section, c));
  });
  return figure;
}

std::vector<Figure> figures_of(const Study& study) {
  std::vector<Figure> figures;
  for (const Section& section : sections_of(study.paper, study.request))
    if (section.figures != nullptr)
      for (Figure& figure : section.figures(study)) figures.push_back(std::move(figure));
  figures.push_back(comparison_figure(study));
  figures.push_back(distance_figure(study));
  std::erase_if(figures, [](const Figure& figure) { return figure.rows.empty(); });
  return figures;
}

std::string notes_of(const Study& study) {
  size_t verified = 0, executed = 0;
  for (const Part& part : study.parts)
    for (const auto& [cell, result] : part.results) {
      executed += result.verified.has_value();
      verified += result.verified == true;
    }
  return executed == 0
             ? ""
             : fmt::format("Executed and compared with float64: {} cells, {} correct.\n", executed, verified);
}

}  // namespace tessera::studies
