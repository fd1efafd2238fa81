// The law of speed-ups at the best n (figure 4c).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/page.h"
#include "studies/common/charts.h"
#include "studies/popsparse/products.h"
#include "studies/popsparse/study.h"

namespace tessera::studies::popsparse {
namespace {

constexpr Mode kLawSparse[] = {Mode::static_sparse, Mode::dynamic_sparse};

/// The published law of static products: section 5.3.
const PowerLaw& published_law() {
  static const PowerLaw law{0.0013, {0.59, -0.54, 0.50}};
  return law;
}

std::string law_text(const PowerLaw& law) {
  return fmt::format("{:#.2g}·m^{:.2f}·d^{:.2f}·b^{:.2f}", law.scale, law.exponents.at(0),
                     law.exponents.at(1), law.exponents.at(2));
}

Figure law_figure(const Products& products) {
  Figure figure{fmt::format("Law of speed-ups at the best n: {}, {} (figure 4c)",
                            ops::name_of(products.precision()), products.part().machine.name),
                "",
                {"of", "law", "products", "R²", "typical error"}};
  for (Mode mode : kLawSparse)
    if (const auto fit = products.law(mode))
      figure.rows.push_back({{std::string(ops::name_of(mode))},
                             {law_text(fit->law)},
                             {std::to_string(fit->samples)},
                             {fmt::format("{:.3f}", fit->r_squared)},
                             {fmt::format("×/÷ {:.2f}", std::exp(fit->typical_error))}});
  if (!figure.rows.empty())
    figure.rows.push_back({{"published, static"}, {law_text(published_law())}, {}, {}, {}});
  return figure;
}

/// Measured speed-ups over those predicted by the law, with the line where both are equal.
report::Html law_chart_of(const Products& products) {
  const auto fit = products.law(Mode::static_sparse);
  if (!fit) return {};
  report::LineChart chart;
  chart.frame = {
      fmt::format("Static over dense against the law, {}", products.part().machine.name),
      fmt::format("Each at its best n. Fitted here: {}. Published: {}; its marks show its predictions for "
                  "the same products.",
                  law_text(fit->law), law_text(published_law()))};
  chart.x = logarithmic("the law, fitted to these points", report::Growth::log2);
  chart.y = logarithmic("speed-up", report::Growth::log2);
  report::Series same{.name = "the law", .colour = report::kGrey, .markers = false};
  report::Series published{
      .name = "the published law", .colour = report::kGrey, .line = false, .reference = true};
  std::vector<report::Series> ours;
  double least = 1, most = 1;
  for (uint32_t block : products.blocks()) {
    report::Series series{.name = fmt::format("b = {}", block), .colour = ours.size(), .line = false};
    for (const PowerLawSample& sample : products.law_samples(Mode::static_sparse)) {
      if (sample.factors[2] != block) continue;
      const double x = fit->law.at(sample.factors), theirs = published_law().at(sample.factors);
      least = std::min(least, x), most = std::max(most, x);
      const std::string where =
          fmt::format("m = {}, d = {}, b = {}", sample.factors[0], density_text(sample.factors[1]), block);
      series.points.push_back(
          {x, sample.value, fmt::format("{}: {:.2f}, predicted {:.2f}", where, sample.value, x)});
      published.points.push_back({x, theirs, fmt::format("{}: {:.2f} by the published law", where, theirs)});
    }
    ours.push_back(std::move(series));
  }
  same.points = {{least, least}, {most, most}};
  chart.series = {std::move(same), std::move(published)};  // below ours
  for (report::Series& series : ours) chart.series.push_back(std::move(series));
  return report::chart(chart);
}

std::vector<Figure> law_figures(const Study& study) {
  std::vector<Figure> all;
  for (const Part& part : study.parts) all.push_back(law_figure(Products(study, part)));
  return all;
}

report::Html law_charts(const Study& study) {
  report::Html all;
  for (const Part& part : study.parts) all += law_chart_of(Products(study, part));
  return all;
}

/// Speed-up = scale · m^… · (1/d)^… · b^…
std::vector<Comparison> law_comparisons(const Study& study) {
  std::vector<Comparison> all;
  for (const Part& part : study.parts)
    for (Mode mode : kLawSparse) {
      const auto fit = Products(study, part).law(mode);
      if (!fit) continue;
      const auto add = [&](const char* what, double ours, std::optional<double> published) {
        all.push_back(
            {.what = fmt::format("law of {} products, {}, {}", ops::name_of(mode), what, part.machine.name),
             .published = mode == Mode::static_sparse ? published : std::nullopt,
             .ours = ours,
             .is_measured = part.is_host()});
      };
      const auto &law = fit->law, &theirs = published_law();
      add("scale", law.scale, theirs.scale);
      add("exponent of m", law.exponents[0], theirs.exponents[0]);
      add("exponent of 1/d", -law.exponents[1], -theirs.exponents[1]);
      add("exponent of b", law.exponents[2], theirs.exponents[2]);
      add("samples", static_cast<double>(fit->samples), {});
      add("R² of logarithms", fit->r_squared, {});
      add("root mean square of ln(measured / law)", fit->typical_error, {});
    }
  return all;
}

}  // namespace

Section law() {
  return {.name = "law",
          .title = "The law of speed-ups (figure 4c)",
          .figures = law_figures,
          .charts = law_charts,
          .comparisons = law_comparisons,
          .reads = kProducts};
}

}  // namespace tessera::studies::popsparse
