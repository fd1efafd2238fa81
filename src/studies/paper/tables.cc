#include "studies/paper/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::studies {
namespace {

using Entry = Figure::Entry;

constexpr double kDarkest = 4;  // a ratio from here on, and below its inverse, gets the full shade

std::string bounds_text(const Comparison& c) {
  return c.least ? fmt::format("{:.2f} to {:.2f}", *c.least, *c.most) : "";
}

std::vector<Entry> row_of(const Section& section, const Comparison& c) {
  Entry ratio{"-"};
  if (const auto value = c.ratio()) {
    ratio.words = fmt::format("{:.2f}", *value);
    ratio.shade = -std::abs(std::log(*value)) / std::log(kDarkest);
  }
  const auto near = c.is_near();
  return {{std::string(section.name)},
          {c.what},
          {c.unit},
          {fmt::format("{:.4g}", c.published)},
          {c.ours ? fmt::format("{:.4g}", *c.ours) : "-"},
          std::move(ratio),
          {bounds_text(c)},
          {near ? (*near ? "yes" : "no") : ""},
          {c.remark}};
}

}  // namespace

Figure comparison_figure(const Study& study) {
  Figure figure{"Published numbers and ours",
                "",
                {"section", "number", "unit", "published", "ours", "ours/published", "meant to be", "is",
                 "why they differ"}};
  for (const Section& section : sections_of(study.paper, study.request))
    if (section.comparisons != nullptr)
      for (const Comparison& c : section.comparisons(study)) figure.rows.push_back(row_of(section, c));
  return figure;
}

std::vector<Figure> figures_of(const Study& study) {
  std::vector<Figure> figures;
  for (const Section& section : sections_of(study.paper, study.request))
    if (section.figures != nullptr)
      for (Figure& figure : section.figures(study)) figures.push_back(std::move(figure));
  figures.push_back(comparison_figure(study));
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
