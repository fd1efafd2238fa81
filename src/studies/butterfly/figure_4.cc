// Figure 4: dense products A · B of m × n and n × k with the same number of operations, over the skew s = m /
// n of A.
#include <fmt/format.h>

#include <cmath>

#include "report/page.h"
#include "studies/butterfly/study.h"
#include "studies/common/charts.h"
#include "studies/paper/product_cell.h"

namespace tessera::studies::butterfly {
namespace {

constexpr std::string_view kFigure4Name = "figure-4";

/// A product whose A is 2^shift times as high as a square one, and as much narrower.
struct Skew {
  int shift = 0;
  uint32_t square = 0;  ///< k, and m = n without skew

  uint32_t m() const { return scaled(shift); }
  uint32_t n() const { return scaled(-shift); }
  double ratio() const { return std::exp2(2 * shift); }
  std::string name() const { return fmt::format("m = {} n = {} k = {}", m(), n(), square); }

 private:
  uint32_t scaled(int by) const { return by < 0 ? square >> -by : square << by; }
};

std::vector<Skew> skews_of(const machine::Machine& machine, const Request& request) {
  const uint32_t square = machine.kind == machine::Kind::host ? 512 : 2048;
  const int most = request.full ? 6 : 5;
  std::vector<Skew> skews;
  for (int shift = -most; shift <= most; ++shift) skews.push_back({shift, square});
  return skews;
}

std::vector<Cell> figure_4_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  for (const Skew& skew : skews_of(machine, request))
    all.push_back({skew.name(), 0.5, [skew](const Setting& setting) {
                     return run_product({.m = skew.m(), .k = skew.n(), .n = skew.square}, setting);
                   }});
  return all;
}

std::optional<double> figure_4_rate_of(const Part& part, const Skew& skew) {
  return part.value(kFigure4Name, skew.name(), "gflops");
}

std::string ratio_text(const Skew& skew) {
  return skew.shift == 0 ? "1" : fmt::format("2^{}", 2 * skew.shift);
}

std::vector<Figure> figure_4_figures(const Study& study) {
  std::vector<Figure> all;
  for (const Part& part : study.parts) {
    Figure figure{fmt::format("Skewed FP32 products on {} (figure 4)", part.machine.name),
                  "A is m × n, B is n × k; all have the same number of operations. The paper's figure has no "
                  "numbers: the "
                  "IPU is said to be much more stable than the GPU.",
                  {"s = m/n", "m", "n", "GFLOP/s", "relative to s = 1"}};
    const auto skews = skews_of(part.machine, study.request);
    const auto square = figure_4_rate_of(part, skews[skews.size() / 2]);
    for (const Skew& skew : skews) {
      const Result* result = part.find(kFigure4Name, skew.name());
      if (result == nullptr) continue;
      const auto rate = figure_4_rate_of(part, skew);
      figure.rows.push_back({{ratio_text(skew)},
                             {std::to_string(skew.m())},
                             {std::to_string(skew.n())},
                             {rate ? fmt::format("{:.4g}", *rate) : "-", result->reason},
                             {rate && square ? fmt::format("{:.2f}", *rate / *square) : "-"}});
    }
    all.push_back(std::move(figure));
  }
  return all;
}

report::Html figure_4_charts(const Study& study) {
  report::LineChart chart;
  chart.frame = {"Skewed FP32 products, relative to the square one",
                 "A is m × n, of the same size throughout."};
  chart.x = logarithmic("s = m / n", report::Growth::log2);
  chart.y = {.label = "relative rate", .least = 0};
  size_t colour = 0;
  for (const Part& part : study.parts) {
    Pair pair(part.machine.name, colour++);
    const auto skews = skews_of(part.machine, study.request);
    const auto square = figure_4_rate_of(part, skews[skews.size() / 2]);
    for (const Skew& skew : skews)
      if (const auto rate = figure_4_rate_of(part, skew); rate && square)
        pair.add(skew.ratio(), *rate / *square, std::nullopt, "s = " + ratio_text(skew));
    std::move(pair).put_into(chart);
  }
  return report::chart(chart);
}

}  // namespace

Section figure_4() {
  return {.name = kFigure4Name,
          .title = "Skewed products (figure 4)",
          .cells = figure_4_cells,
          .figures = figure_4_figures,
          .charts = figure_4_charts};
}

}  // namespace tessera::studies::butterfly
