#include <algorithm>

#include "report/plot.h"

namespace tessera::report {
namespace {

constexpr double kLane = 40;
constexpr double kThickness = 30;
constexpr double kTop = 6;
constexpr size_t kReadable = 8;  // characters that are worth being shown of a longer name

}  // namespace

Html chart(const Timeline& timeline) {
  std::vector<bool> used(timeline.categories.size());
  Range range;
  double names = 0;
  for (const Timeline::Lane& lane : timeline.lanes) {
    names = std::max(names, text_width(lane.name));
    for (const Timeline::Span& span : lane.spans) {
      range.include(span.begin, Growth::linear);
      range.include(span.begin + span.length, Growth::linear);
      if (span.category < used.size()) used[span.category] = true;
    }
  }
  if (!range.least) return nothing_to_show(timeline.frame);
  Axis axis = timeline.time;
  axis.growth = Growth::linear;
  if (!axis.least) axis.least = 0;
  if (!axis.most) axis.most = range.most;
  names = std::min(names, timeline.frame.width / 4);
  const double bottom = kTop + kLane * static_cast<double>(timeline.lanes.size());
  const Area area{names == 0 ? 2 : names + 12, kTop, timeline.frame.width - 12, bottom};
  const Scale scale(axis, range, area.left, area.right);
  Canvas canvas(timeline.frame.width, bottom + (axis.label.empty() ? 26 : 42));
  for (const Tick& tick : scale.ticks()) canvas.line("grid", scale.at(tick.value), 0, scale.at(tick.value), bottom);
  for (size_t l = 0; l < timeline.lanes.size(); ++l) {
    const Timeline::Lane& lane = timeline.lanes[l];
    const double y = kTop + kLane * static_cast<double>(l) + (kLane - kThickness) / 2;
    canvas.text(area.left - 10, y + kThickness / 2 + 4, shortened(lane.name, names), Anchor::end);
    for (const Timeline::Span& span : lane.spans) {
      const double left = scale.at(span.begin);
      const double width = scale.at(span.begin + span.length) - left;
      const double seam = width > 4 ? 1 : 0;
      canvas.rectangle(left, y, std::max(width - seam, 0.4), kThickness,
                       colour_of_category(timeline.categories, span.category), span.title);
      if (const std::string name = shortened(span.name, width - 10); name.size() > kReadable || name == span.name)
        canvas.text(left + 5, y + kThickness / 2 + 4, name, Anchor::start, "inside");
    }
  }
  draw_x_axis(canvas, area, axis, scale);
  return figure(timeline.frame, legend(timeline.categories, used), canvas.html(timeline.frame.title));
}

}  // namespace tessera::report
