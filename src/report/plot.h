// Drawing primitives of all charts: an SVG canvas, axes, legends, captions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/axis.h"
#include "report/chart.h"
#include "report/html.h"

namespace tessera::report {

inline constexpr double kLineHeight = 16;

/// A number of pixels as short text.
std::string pixels(double value);

/// Approximate width of a text in the charts' font size.
double text_width(std::string_view text);

/// The longest prefix of a text that fits, with … if it is shortened.
std::string shortened(const std::string& text, double width);

enum class Anchor { start, middle, end };

class Canvas {
 public:
  Canvas(double width, double height) : width_(width), height_(height) {}

  void add(const Html& shape) { shapes_ += shape; }
  void line(std::string_view style, double x1, double y1, double x2, double y2);
  void text(double x, double y, std::string_view words, Anchor anchor = Anchor::start,
            std::string_view style = "");
  /// A rectangle in a colour, with a tooltip.
  void rectangle(double x, double y, double width, double height, size_t colour, std::string_view title = "");
  /// An invisible rectangle with a tooltip.
  void probe(double x, double y, double width, double height, std::string_view title);
  void path(const std::string& data, size_t colour);

  double width() const { return width_; }
  double height() const { return height_; }
  Html html(std::string_view description) const;
  /// As a file of its own, with the categories in use below.
  std::string svg_file(std::string_view description, const std::vector<Category>& categories,
                       const std::vector<bool>& used) const;

 private:
  double width_;
  double height_;
  Html shapes_;
};

/// The part of a canvas in which data is drawn.
struct Area {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;

  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

/// The area that remains for data beside the axis labels (y on the left, x below) and the names of y and its
/// limit (above).
Area area_for(const Frame& frame, const Axis& x, const Axis& y, const Range& y_data, bool has_limit);

void draw_x_axis(Canvas& canvas, const Area& area, const Axis& axis, const Scale& scale);
void draw_y_axis(Canvas& canvas, const Area& area, const Axis& axis, const Scale& scale);
void draw_y_limit(Canvas& canvas, const Area& area, const Scale& scale, const Limit& limit);

/// The CSS class of a limit's line and name.
std::string_view style_of(const Limit& limit);

/// An entry of a legend: a small drawing of 22 × 12 and its name.
Html legend_entry(const Html& drawing, std::string_view name);
/// The categories in use, if there is more than one.
Html legend(const std::vector<Category>& categories, const std::vector<bool>& used);

size_t colour_of_category(const std::vector<Category>& categories, size_t index);

/// The whole figure: title, legend, drawing, note.
Html figure(const Frame& frame, const Html& legend, const Html& drawing);

/// The content of a figure without data.
Html nothing_to_show(const Frame& frame);

}  // namespace tessera::report
