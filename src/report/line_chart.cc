#include <fmt/format.h>

#include <array>

#include "report/plot.h"

namespace tessera::report {
namespace {

constexpr double kRadius = 3.5;

/// Each colour has its own shape, so that series are distinguishable with colour blindness and in print.
Html marker(double x, double y, const Series& series, size_t colour, std::string_view title) {
  const auto r = [](double factor) { return pixels(kRadius * factor); };
  const std::string place = fmt::format("M{} {}", pixels(x), pixels(y));
  const std::array<std::string, 4> outlines = {
      fmt::format("{}m-{} 0a{} {} 0 1 0 {} 0a{} {} 0 1 0 -{} 0z", place, r(1), r(1), r(1), r(2), r(1), r(1),
                  r(2)),
      fmt::format("{}m-{} -{}h{}v{}h-{}z", place, r(0.95), r(0.95), r(1.9), r(1.9), r(1.9)),
      fmt::format("{}m0 -{}l{} {}h-{}z", place, r(1.25), r(1.2), r(2.1), r(2.4)),
      fmt::format("{}m0 -{}l{} {}l-{} {}l-{} -{}z", place, r(1.4), r(1.4), r(1.4), r(1.4), r(1.4), r(1.4),
                  r(1.4))};
  return element("path",
                 {{"class", "mark"},
                  {"d", outlines[colour % outlines.size()]},
                  {"stroke", colour_of(colour)},
                  {"stroke-width", "1.5"},
                  {"fill", series.reference ? "var(--paper)" : colour_of(colour)}},
                 title.empty() ? Html{} : element("title", {}, title));
}

Html stroke(const std::string& data, const Series& series, size_t colour) {
  return element("path", {{"d", data},
                          {"stroke", colour_of(colour)},
                          {"stroke-width", "2"},
                          {"fill", "none"},
                          {"stroke-linejoin", "round"},
                          {"stroke-dasharray", series.reference ? "5 4" : ""}});
}

class LinePlot {
 public:
  explicit LinePlot(const LineChart& lines)
      : lines_(lines),
        y_range_(y_range()),
        area_(area_for(lines.frame, lines.x, lines.y, y_range_, lines.limit.has_value())),
        x_(lines.x, x_range(), area_.left, area_.right),
        y_(lines.y, y_range_, area_.bottom, area_.top),
        canvas_(lines.frame.width, lines.frame.height) {}

  Html draw() {
    draw_y_axis(canvas_, area_, lines_.y, y_);
    draw_x_axis(canvas_, area_, lines_.x, x_);
    if (lines_.limit) draw_y_limit(canvas_, area_, y_, *lines_.limit);
    for (size_t s = 0; s < lines_.series.size(); ++s)
      if (lines_.series[s].line)
        canvas_.add(stroke(outline_of(lines_.series[s]), lines_.series[s], colour(s)));
    for (size_t s = 0; s < lines_.series.size(); ++s) draw_points(s);
    return figure(lines_.frame, legend_of_series(), canvas_.html(lines_.frame.title));
  }

 private:
  bool shows(const Point& p) const {
    return Scale::shows(p.x, lines_.x.growth) && Scale::shows(p.y, lines_.y.growth);
  }

  Range x_range() const {
    Range range;
    for (const Series& series : lines_.series)
      for (const Point& p : series.points)
        if (shows(p)) range.include(p.x, lines_.x.growth);
    return range;
  }

  Range y_range() const {
    Range range;
    for (const Series& series : lines_.series)
      for (const Point& p : series.points)
        if (shows(p)) range.include(p.y, lines_.y.growth);
    if (lines_.limit) range.include(lines_.limit->value, lines_.y.growth);
    return range;
  }

  size_t colour(size_t series) const { return lines_.series[series].colour.value_or(series); }

  std::string outline_of(const Series& series) const {
    std::string data;
    bool drawing = false;
    for (const Point& p : series.points) {
      if (!shows(p)) {
        drawing = false;
        continue;
      }
      data += fmt::format("{}{} {}", drawing ? "L" : "M", pixels(x_.at(p.x)), pixels(y_.at(p.y)));
      drawing = true;
    }
    return data;
  }

  void draw_points(size_t s) {
    const Series& series = lines_.series[s];
    if (!series.markers) return;
    for (const Point& p : series.points)
      if (shows(p)) canvas_.add(marker(x_.at(p.x), y_.at(p.y), series, colour(s), title_of(series, p)));
  }

  std::string title_of(const Series& series, const Point& p) const {
    if (!p.title.empty()) return p.title;
    return fmt::format("{}\n{}: {}\n{}: {}", series.name, lines_.x.label, value_text(p.x, lines_.x.unit),
                       lines_.y.label, value_text(p.y, lines_.y.unit));
  }

  Html legend_of_series() const {
    Html entries;
    if (lines_.series.size() < 2) return entries;
    for (size_t s = 0; s < lines_.series.size(); ++s) {
      const Series& series = lines_.series[s];
      Html drawing;
      if (series.line) drawing += stroke("M0 6H22", series, colour(s));
      if (series.markers) drawing += marker(11, 6, series, colour(s), "");
      entries += legend_entry(drawing, series.name);
    }
    return entries;
  }

  const LineChart& lines_;
  Range y_range_;
  Area area_;
  Scale x_;
  Scale y_;
  Canvas canvas_;
};

}  // namespace

Html chart(const LineChart& lines) {
  size_t points = 0;
  for (const Series& series : lines.series) points += series.points.size();
  return points == 0 ? nothing_to_show(lines.frame) : LinePlot(lines).draw();
}

}  // namespace tessera::report
