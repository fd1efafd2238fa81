#include "studies/common/curves.h"

#include <cmath>
#include <utility>

#include "studies/common/charts.h"

namespace tessera::studies {

double shade_of(double ratio) {
  constexpr double kDarkest = 4;  // from here on, and below its inverse
  return std::log(ratio) / std::log(kDarkest);
}

Figure::Entry entry_of(const Curves& curves, const Curves::Value& value) {
  Figure::Entry entry{value.ours ? curves.words(*value.ours) : value.missing, value.title};
  if (value.published) entry.words += fmt::format(" ({})", curves.words(*value.published));
  entry.words += value.remark;
  if (value.ours && curves.is_shaded) entry.shade = shade_of(*value.ours);
  return entry;
}

Figure figure_of(const Curves& curves) {
  Figure figure{curves.title, curves.note, {""}};
  for (double x : curves.xs)
    figure.head.push_back(fmt::format("{} = {}", curves.symbol, curves.text_of_x(x)));
  for (const Curves::Curve& curve : curves.curves) {
    std::vector<Figure::Entry> row = {{curve.name}};
    bool any = false;
    for (double x : curves.xs) {
      const Curves::Value value = curve.at(x);
      any |= value.ours.has_value();
      row.push_back(entry_of(curves, value));
    }
    if (any) figure.rows.push_back(std::move(row));
  }
  return figure;
}

report::Html chart_of(const Curves& curves) {
  report::LineChart chart;
  chart.frame = {curves.title, curves.note, report::kHalf};
  chart.x = logarithmic(curves.quantity, report::Growth::log2);
  chart.y = logarithmic(curves.unit, report::Growth::log10);
  size_t colour = 0;
  for (const Curves::Curve& curve : curves.curves) {
    if (!curve.is_drawn) continue;
    Pair pair(curve.name, curve.colour ? *curve.colour : colour++);
    for (double x : curves.xs) {
      const Curves::Value value = curve.at(x);
      pair.add(x, value.ours, value.published, fmt::format("{} = {}", curves.symbol, curves.text_of_x(x)));
    }
    std::move(pair).put_into(chart);
  }
  return chart.series.empty() ? report::Html{} : report::chart(chart);
}

}  // namespace tessera::studies
