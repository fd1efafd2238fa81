// Bars in rows, columns of bars, histograms.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/plot.h"

namespace tessera::report {
namespace {

constexpr double kRow = 30;
constexpr double kThickness = 20;

double part_of(const std::vector<double>& parts, size_t index) {
  return index < parts.size() && std::isfinite(parts[index]) ? std::max(parts[index], 0.0) : 0.0;
}

double sum_of(const std::vector<double>& parts) {
  double sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) sum += part_of(parts, i);
  return sum;
}

/// An axis that stacks stand on.
Axis from_zero(Axis axis) {
  axis.growth = Growth::linear;
  axis.least = 0;
  return axis;
}

std::string part_title(const Category& category, double part, double sum, Unit unit) {
  return fmt::format("{}: {} ({:.1f} %)", category.name, value_text(part, unit), sum > 0 ? 100 * part / sum : 0);
}

}  // namespace

Html chart(const BarChart& bars) {
  if (bars.bars.empty()) return nothing_to_show(bars.frame);
  const Axis axis = from_zero(bars.value);
  Range range;
  double names = 0;
  double values = 0;
  std::vector<std::string> texts;
  for (const BarChart::Bar& bar : bars.bars) {
    const double sum = sum_of(bar.parts);
    range.include(sum, Growth::linear);
    texts.push_back(bar.value.empty() ? value_text(sum, axis.unit) : bar.value);
    names = std::max(names, text_width(bar.name));
    values = std::max(values, text_width(texts.back()));
  }
  names = std::min(names, bars.frame.width * 0.4);
  const double bottom = kRow * static_cast<double>(bars.bars.size());
  const Area area{names + 12, 0, std::max(names + 112, bars.frame.width - values - 12), bottom};
  const Scale scale(axis, range, area.left, area.right);
  Canvas canvas(bars.frame.width, bottom + (axis.label.empty() ? 26 : 42));
  for (const Tick& tick : scale.ticks()) canvas.line("grid", scale.at(tick.value), 0, scale.at(tick.value), bottom);
  for (size_t b = 0; b < bars.bars.size(); ++b) {
    const BarChart::Bar& bar = bars.bars[b];
    const double y = kRow * static_cast<double>(b) + (kRow - kThickness) / 2;
    const double sum = sum_of(bar.parts);
    double before = 0;
    canvas.text(area.left - 8, y + 14, shortened(bar.name, names), Anchor::end);
    for (size_t c = 0; c < bars.categories.size(); ++c) {
      const double part = part_of(bar.parts, c);
      if (part == 0) continue;
      const double left = scale.at(before);
      canvas.rectangle(left, y, scale.at(before + part) - left, kThickness, colour_of_category(bars.categories, c),
                       part_title(bars.categories[c], part, sum, axis.unit));
      before += part;
    }
    canvas.text(scale.at(before) + 6, y + 14, texts[b], Anchor::start, "strong");
  }
  draw_x_axis(canvas, area, axis, scale);
  return figure(bars.frame, bars.categories.size() > 1 ? legend(bars.categories) : Html{}, canvas.html(bars.frame.title));
}

Html chart(const ColumnChart& columns) {
  if (columns.columns.empty()) return nothing_to_show(columns.frame);
  const Axis y_axis = from_zero(columns.y);
  Range range;
  for (const ColumnChart::Column& column : columns.columns) range.include(sum_of(column.parts), Growth::linear);
  if (columns.limit) range.include(columns.limit->value, Growth::linear);
  const auto count = static_cast<double>(columns.columns.size());
  const Axis x_axis{columns.x_label, Unit::number, Growth::linear, columns.first,
                    columns.first + columns.step * count};
  const Area area = area_for(columns.frame, x_axis, y_axis, range);
  const Scale x(x_axis, {}, area.left, area.right);
  const Scale y(y_axis, range, area.bottom, area.top);
  Canvas canvas(columns.frame.width, columns.frame.height);
  draw_y_axis(canvas, area, y_axis, y);
  const auto edge = [&](size_t column) { return area.left + area.width() * static_cast<double>(column) / count; };
  const double gap = area.width() / count > 6 ? 1 : 0;
  // One outline a category: a page of thousands of rectangles would be slow.
  std::vector<double> base(columns.columns.size(), 0.0);
  for (size_t c = 0; c < columns.categories.size(); ++c) {
    std::string outline;
    for (size_t i = 0; i < columns.columns.size(); ++i) {
      const double part = part_of(columns.columns[i].parts, c);
      if (part == 0) continue;
      outline += fmt::format("M{} {}V{}H{}V{}z", pixels(edge(i)), pixels(y.at(base[i])), pixels(y.at(base[i] + part)),
                             pixels(edge(i + 1) - gap), pixels(y.at(base[i])));
      base[i] += part;
    }
    canvas.path(outline, colour_of_category(columns.categories, c));
  }
  for (size_t i = 0; i < columns.columns.size(); ++i)
    if (!columns.columns[i].title.empty())
      canvas.probe(edge(i), area.top, edge(i + 1) - edge(i), area.height(), columns.columns[i].title);
  if (columns.limit) draw_y_limit(canvas, area, y, *columns.limit);
  draw_x_axis(canvas, area, x_axis, x);
  return figure(columns.frame, columns.categories.size() > 1 ? legend(columns.categories) : Html{},
                canvas.html(columns.frame.title));
}

Html chart(const Histogram& histogram) {
  if (histogram.bins.empty()) return nothing_to_show(histogram.frame);
  Axis y_axis = histogram.y;
  if (y_axis.growth == Growth::linear) y_axis.least = 0;
  Range x_range;
  Range y_range;
  for (const Histogram::Bin& bin : histogram.bins) {
    x_range.include(bin.from, histogram.x.growth);
    x_range.include(bin.to, histogram.x.growth);
    y_range.include(bin.count, y_axis.growth);
  }
  if (histogram.limit) x_range.include(histogram.limit->value, histogram.x.growth);
  const Area area = area_for(histogram.frame, histogram.x, y_axis, y_range);
  const Scale x(histogram.x, x_range, area.left, area.right);
  const Scale y(y_axis, y_range, area.bottom, area.top);
  Canvas canvas(histogram.frame.width, histogram.frame.height);
  draw_y_axis(canvas, area, y_axis, y);
  for (const Histogram::Bin& bin : histogram.bins) {
    if (!x.shows(bin.to) || !y.shows(bin.count) || bin.count == 0) continue;
    const double left = x.shows(bin.from) ? x.at(bin.from) : area.left;
    const double top = std::min(y.at(bin.count), area.bottom - 1);  // one among thousands is seen too
    const double gap = x.at(bin.to) - left > 6 ? 1 : 0;
    canvas.rectangle(left, top, x.at(bin.to) - left - gap, area.bottom - top, histogram.colour,
                     fmt::format("{} to {}: {}", value_text(bin.from, histogram.x.unit),
                                 value_text(bin.to, histogram.x.unit), value_text(bin.count, y_axis.unit)));
  }
  if (histogram.limit && x.shows(histogram.limit->value)) {
    const double at = x.at(histogram.limit->value);
    canvas.line("limit", at, area.top, at, area.bottom);
    canvas.text(at - 5, area.top + 10, histogram.limit->name, Anchor::end, "limit");
  }
  draw_x_axis(canvas, area, histogram.x, x);
  return figure(histogram.frame, {}, canvas.html(histogram.frame.title));
}

std::vector<Histogram::Bin> bins_of(const std::vector<double>& values, size_t bins) {
  Range range;
  for (double value : values) range.include(value, Growth::linear);
  if (!range.least) return {};
  const double width = round_step((*range.most - *range.least) / static_cast<double>(std::max<size_t>(bins, 1)),
                                  std::max(std::abs(*range.most), 1.0));
  const double first = std::floor(*range.least / width) * width;
  const auto count = static_cast<size_t>((*range.most - first) / width) + 1;
  std::vector<Histogram::Bin> result(count);
  for (size_t b = 0; b < count; ++b)
    result[b] = {first + width * static_cast<double>(b), first + width * static_cast<double>(b + 1), 0};
  for (double value : values)
    if (std::isfinite(value)) ++result[std::min(count - 1, static_cast<size_t>((value - first) / width))].count;
  return result;
}

}  // namespace tessera::report
