// Curves over one quantity, as a table and as a chart.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/chart.h"
#include "studies/common/figure.h"

namespace tessera::studies {

struct Curves {
  struct Value {
    std::optional<double> ours{};
    std::optional<double> published{};
    std::string title{};        ///< tooltip
    std::string missing = "-";  ///< shown instead of a missing number of ours
    std::string remark{};       ///< shown after both numbers
  };
  struct Curve {
    std::string name{};
    std::function<Value(double x)> at{};
    bool is_drawn = true;            ///< whether the curve is also on the chart
    std::optional<size_t> colour{};  ///< default: its number
  };

  std::string title{};
  std::string note{};
  std::string quantity{};  ///< "density"
  std::string symbol{};    ///< "d"
  std::string unit{};      ///< unit of values
  std::vector<double> xs{};
  std::string (*text_of_x)(double x) = [](double x) { return fmt::format("{}", x); };
  std::string (*words)(double value) = [](double value) { return fmt::format("{:.2f}", value); };
  bool is_shaded = false;  ///< whether cells are shaded: green above 1, red below
  std::vector<Curve> curves{};
};

/// A row for each curve that has numbers, a column for each x.
Figure figure_of(const Curves& curves);

/// The chart of curves, half as wide as the page.
report::Html chart_of(const Curves& curves);

/// "ours (published)"
Figure::Entry entry_of(const Curves& curves, const Curves::Value& value);

/// The shade of a ratio: green above 1, red below.
double shade_of(double ratio);

}  // namespace tessera::studies
