#include <algorithm>

#include "report/plot.h"

namespace tessera::report {
namespace {

constexpr double kLane = 40;
constexpr double kLaneThickness = 30;
constexpr double kTopMargin = 6;
constexpr double kWideSpan = 4;  // minimum span width in pixels for gaps between spans
constexpr double kNameMargin = 5;
constexpr size_t kReadable = 8;  // minimum number of characters of a shortened name

class TimelinePlot {
 public:
  explicit TimelinePlot(const Timeline& timeline)
      : timeline_(timeline),
        axis_(axis()),
        area_(area()),
        scale_(axis_, {}, area_.left, area_.right),
        canvas_(timeline.frame.width, area_.bottom + (axis_.label.empty() ? 26 : 42)),
        used_(timeline.categories.size()) {}

  Html draw() {
    draw_lanes();
    return figure(timeline_.frame, legend(timeline_.categories, used_), canvas_.html(timeline_.frame.title));
  }

  std::string svg_file() {
    draw_lanes();
    return canvas_.svg_file(timeline_.frame.title, timeline_.categories, used_);
  }

 private:
  void draw_lanes() {
    for (const Tick& tick : scale_.ticks())
      canvas_.line("grid", scale_.at(tick.value), 0, scale_.at(tick.value), area_.bottom);
    for (size_t l = 0; l < timeline_.lanes.size(); ++l)
      draw_lane(timeline_.lanes[l],
                kTopMargin + kLane * static_cast<double>(l) + (kLane - kLaneThickness) / 2);
    draw_x_axis(canvas_, area_, axis_, scale_);
  }

  /// From 0, or the first span if later, to the end of the last.
  Axis axis() const {
    Range range;
    for (const Timeline::Lane& lane : timeline_.lanes)
      for (const Timeline::Span& span : lane.spans) {
        range.include(span.begin, Growth::linear);
        range.include(span.begin + span.length, Growth::linear);
      }
    Axis axis = timeline_.time;
    axis.growth = Growth::linear;
    if (!axis.least) axis.least = std::min(0.0, range.least.value_or(0));
    if (!axis.most) axis.most = range.most;
    return axis;
  }

  Area area() const {
    double names = 0;
    for (const Timeline::Lane& lane : timeline_.lanes) names = std::max(names, text_width(lane.name));
    names = std::min(names, timeline_.frame.width / 4);
    return {names == 0 ? 2 : names + 12, kTopMargin, timeline_.frame.width - 12,
            kTopMargin + kLane * static_cast<double>(timeline_.lanes.size())};
  }

  void draw_lane(const Timeline::Lane& lane, double top) {
    const double text_y = top + kLaneThickness / 2 + 4;
    canvas_.text(area_.left - 10, text_y, shortened(lane.name, area_.left - 12), Anchor::end);
    for (const Timeline::Span& span : lane.spans) draw_span(span, top, text_y);
  }

  void draw_span(const Timeline::Span& span, double top, double text_y) {
    const double left = scale_.at(span.begin);
    const double width = scale_.at(span.begin + span.length) - left;
    const size_t colour = colour_of_category(timeline_.categories, span.category);
    if (span.category < used_.size()) used_[span.category] = true;
    canvas_.rectangle(left, top, std::max(width - (width > kWideSpan ? 1 : 0), 0.4), kLaneThickness, colour,
                      span.title);
    const std::string_view style = is_light(colour) ? "inside on-light" : "inside";
    const std::string name = shortened(span.name, width - 2 * kNameMargin);
    const bool fits_closely = name != span.name && text_width(span.name) <= width;
    if (fits_closely) return canvas_.text(left + width / 2, text_y, span.name, Anchor::middle, style);
    if (name.size() > kReadable || name == span.name)
      canvas_.text(left + kNameMargin, text_y, name, Anchor::start, style);
  }

  const Timeline& timeline_;
  Axis axis_;
  Area area_;
  Scale scale_;
  Canvas canvas_;
  std::vector<bool> used_;
};

bool is_empty(const Timeline& timeline) {
  return std::all_of(timeline.lanes.begin(), timeline.lanes.end(),
                     [](const auto& lane) { return lane.spans.empty(); });
}

}  // namespace

Html chart(const Timeline& timeline) {
  return is_empty(timeline) ? nothing_to_show(timeline.frame) : TimelinePlot(timeline).draw();
}

std::string svg_file(const Timeline& timeline) { return TimelinePlot(timeline).svg_file(); }

}  // namespace tessera::report
