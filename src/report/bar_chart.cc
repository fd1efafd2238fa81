#include <fmt/format.h>

#include "report/bars.h"
#include "report/plot.h"

namespace tessera::report {
namespace {

constexpr double kRow = 30;
constexpr double kBarThickness = 20;
constexpr double kGap = 12;

class BarPlot {
 public:
  explicit BarPlot(const BarChart& bars)
      : bars_(bars),
        axis_(from_zero(bars.value)),
        area_(area()),
        scale_(axis_, range(), area_.left, area_.right),
        canvas_(bars.frame.width, area_.bottom + (axis_.label.empty() ? 26 : 42)) {}

  Html draw() {
    for (const Tick& tick : scale_.ticks())
      canvas_.line("grid", scale_.at(tick.value), 0, scale_.at(tick.value), area_.bottom);
    for (size_t b = 0; b < bars_.bars.size(); ++b) draw_bar(bars_.bars[b], kRow * static_cast<double>(b));
    draw_x_axis(canvas_, area_, axis_, scale_);
    return figure(bars_.frame, legend(bars_.categories, used_categories(bars_.bars, bars_.categories.size())),
                  canvas_.html(bars_.frame.title));
  }

 private:
  std::string value_of(const BarChart::Bar& bar) const {
    return bar.value.empty() ? value_text(sum_of(bar.parts), axis_.unit) : bar.value;
  }

  Range range() const {
    Range range;
    for (const BarChart::Bar& bar : bars_.bars) range.include(sum_of(bar.parts), Growth::linear);
    return range;
  }

  /// The area between the names on the left and the values on the right.
  Area area() const {
    double names = 0;
    double values = 0;
    for (const BarChart::Bar& bar : bars_.bars) {
      names = std::max(names, text_width(bar.name));
      values = std::max(values, 1.1 * text_width(value_of(bar)));
    }
    names = std::min(names, bars_.frame.width * 0.45);
    return {names + kGap, 0, std::max(names + 100, bars_.frame.width - values - kGap),
            kRow * static_cast<double>(bars_.bars.size())};
  }

  void draw_bar(const BarChart::Bar& bar, double top) {
    const double y = top + (kRow - kBarThickness) / 2;
    const double text_y = y + kBarThickness / 2 + 4;
    const double sum = sum_of(bar.parts);
    canvas_.text(area_.left - 8, text_y, shortened(bar.name, area_.left - kGap), Anchor::end);
    double before = 0;
    for (size_t c = 0; c < bars_.categories.size(); ++c) {
      const double part = part_of(bar.parts, c);
      if (part == 0) continue;
      const double left = scale_.at(before);
      canvas_.rectangle(left, y, scale_.at(before + part) - left, kBarThickness,
                        colour_of_category(bars_.categories, c),
                        fmt::format("{}: {} ({:.1f} %)", bars_.categories[c].name,
                                    value_text(part, axis_.unit), 100 * part / sum));
      before += part;
    }
    canvas_.text(scale_.at(before) + 6, text_y, value_of(bar), Anchor::start, "strong");
  }

  const BarChart& bars_;
  Axis axis_;
  Area area_;
  Scale scale_;
  Canvas canvas_;
};

}  // namespace

Html chart(const BarChart& bars) {
  return bars.bars.empty() ? nothing_to_show(bars.frame) : BarPlot(bars).draw();
}

}  // namespace tessera::report
