#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/plot.h"

namespace tessera::report {
namespace {

constexpr double kWideBin = 6;  // minimum bin width in pixels for gaps between bins

class HistogramPlot {
 public:
  explicit HistogramPlot(const Histogram& histogram)
      : h_(histogram),
        area_(area_for(histogram.frame, histogram.x, y_axis(), counts(), false)),
        x_(histogram.x, positions(), area_.left, area_.right),
        y_(y_axis(), counts(), area_.bottom, area_.top),
        canvas_(histogram.frame.width, histogram.frame.height) {}

  Html draw() {
    draw_y_axis(canvas_, area_, h_.y, y_);
    for (const Histogram::Bin& bin : h_.bins) draw_bin(bin);
    if (h_.limit && x_.shows(h_.limit->value)) {
      const double at = x_.at(h_.limit->value);
      canvas_.line(style_of(*h_.limit), at, area_.top, at, area_.bottom);
      canvas_.text(at - 5, area_.top + 10, h_.limit->name, Anchor::end, style_of(*h_.limit));
    }
    draw_x_axis(canvas_, area_, h_.x, x_);
    return figure(h_.frame, {}, canvas_.html(h_.frame.title));
  }

 private:
  Axis y_axis() const {
    Axis axis = h_.y;
    if (axis.growth == Growth::linear) axis.least = 0;
    return axis;
  }

  Range positions() const {
    Range range;
    for (const Histogram::Bin& bin : h_.bins) {
      range.include(bin.from, h_.x.growth);
      range.include(bin.to, h_.x.growth);
    }
    if (h_.limit) range.include(h_.limit->value, h_.x.growth);
    return range;
  }

  Range counts() const {
    Range range;
    for (const Histogram::Bin& bin : h_.bins) range.include(bin.count, h_.y.growth);
    return range;
  }

  void draw_bin(const Histogram::Bin& bin) {
    if (!x_.shows(bin.to) || !y_.shows(bin.count) || bin.count == 0) return;
    const double left = x_.shows(bin.from) ? x_.at(bin.from) : area_.left;
    const double top = std::min(y_.at(bin.count), area_.bottom - 1);  // keeps a bin of one among thousands
                                                                      // visible
    const double gap = x_.at(bin.to) - left > kWideBin ? 1 : 0;
    canvas_.rectangle(left, top, x_.at(bin.to) - left - gap, area_.bottom - top, h_.colour,
                      fmt::format("{} to {}: {}", value_text(bin.from, h_.x.unit),
                                  value_text(bin.to, h_.x.unit), value_text(bin.count, h_.y.unit)));
  }

  const Histogram& h_;
  Area area_;
  Scale x_;
  Scale y_;
  Canvas canvas_;
};

}  // namespace

Html chart(const Histogram& histogram) {
  return histogram.bins.empty() ? nothing_to_show(histogram.frame) : HistogramPlot(histogram).draw();
}

std::vector<Histogram::Bin> bins_of(const std::vector<double>& values) {
  constexpr double kBins = 40;
  Range range;
  for (double value : values) range.include(value, Growth::linear);
  if (!range.least) return {};
  const double width = round_step((*range.most - *range.least) / kBins,
                                  std::max(std::abs(*range.most), std::abs(*range.least)));
  const double first = std::floor(*range.least / width) * width;
  const auto count = static_cast<size_t>((*range.most - first) / width) + 1;
  std::vector<Histogram::Bin> result(count);
  for (size_t b = 0; b < count; ++b)
    result[b] = {first + width * static_cast<double>(b), first + width * static_cast<double>(b + 1), 0};
  for (double value : values)
    if (std::isfinite(value))
      ++result[std::min(count - 1, static_cast<size_t>((value - first) / width))].count;
  return result;
}

}  // namespace tessera::report
