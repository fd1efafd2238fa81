#include <fmt/format.h>

#include <algorithm>

#include "base/ceil_divide.h"
#include "report/bars.h"
#include "report/plot.h"

namespace tessera::report {
namespace {

constexpr double kWideColumn = 6;  // minimum column width in pixels for gaps between columns

class ColumnPlot {
 public:
  explicit ColumnPlot(const ColumnChart& columns)
      : columns_(columns),
        count_(static_cast<double>(columns.columns.size())),
        x_axis_{columns.x_label, Unit::number, Growth::linear, columns.first,
                columns.first + columns.step * count_},
        y_axis_(from_zero(columns.y)),
        area_(area_for(columns.frame, x_axis_, y_axis_, range(), columns.limit.has_value())),
        y_(y_axis_, range(), area_.bottom, area_.top),
        canvas_(columns.frame.width, columns.frame.height),
        base_(columns.columns.size(), 0.0) {}

  Html draw() {
    draw_y_axis(canvas_, area_, y_axis_, y_);
    for (size_t c = 0; c < columns_.categories.size(); ++c)
      canvas_.path(outline_of(c), colour_of_category(columns_.categories, c));
    for (size_t i = 0; i < columns_.columns.size(); ++i)
      if (const std::string& title = columns_.columns[i].title; !title.empty())
        canvas_.probe(edge(i), area_.top, edge(i + 1) - edge(i), area_.height(), title);
    if (columns_.limit) draw_y_limit(canvas_, area_, y_, *columns_.limit);
    draw_x_axis(canvas_, area_, x_axis_, Scale(x_axis_, {}, area_.left, area_.right));
    return figure(columns_.frame,
                  legend(columns_.categories, used_categories(columns_.columns, columns_.categories.size())),
                  canvas_.html(columns_.frame.title));
  }

 private:
  Range range() const {
    Range range;
    for (const ColumnChart::Column& column : columns_.columns)
      range.include(sum_of(column.parts), Growth::linear);
    if (columns_.limit) range.include(columns_.limit->value, Growth::linear);
    return range;
  }

  double edge(size_t column) const {
    return area_.left + area_.width() * static_cast<double>(column) / count_;
  }

  /// One outline per category: thousands of rectangles would make the page slow.
  std::string outline_of(size_t category) {
    const double gap = area_.width() / count_ > kWideColumn ? 1 : 0;
    std::string outline;
    for (size_t i = 0; i < columns_.columns.size(); ++i) {
      const double part = part_of(columns_.columns[i].parts, category);
      if (part == 0) continue;
      const std::string bottom = pixels(y_.at(base_[i]));
      base_[i] += part;
      outline += fmt::format("M{} {}V{}H{}V{}z", pixels(edge(i)), bottom, pixels(y_.at(base_[i])),
                             pixels(edge(i + 1) - gap), bottom);
    }
    return outline;
  }

  const ColumnChart& columns_;
  double count_;
  Axis x_axis_;
  Axis y_axis_;
  Area area_;
  Scale y_;
  Canvas canvas_;
  std::vector<double> base_;  ///< base of the next part of each column
};

}  // namespace

Html chart(const ColumnChart& columns) {
  return columns.columns.empty() ? nothing_to_show(columns.frame) : ColumnPlot(columns).draw();
}

void add_tiles(ColumnChart& columns, std::span<const double> amounts, std::string_view most,
               const std::function<ColumnChart::Column(size_t tile)>& column_of) {
  constexpr size_t kMostColumns = 400;
  const size_t together = base::ceil_divide(amounts.size(), kMostColumns);
  columns.x_label = "tile";
  columns.step = static_cast<double>(together);
  for (size_t first = 0; first < amounts.size(); first += together) {
    const auto neighbours = amounts.subspan(first, std::min(together, amounts.size() - first));
    const auto largest = std::ranges::max_element(neighbours);
    columns.columns.push_back(column_of(first + static_cast<size_t>(largest - neighbours.begin())));
  }
  std::string& note = columns.frame.note;
  if (together > 1)
    note += fmt::format("{}Each column is the {} of {} neighbouring tiles.", note.empty() ? "" : " ", most,
                        together);
}

}  // namespace tessera::report
