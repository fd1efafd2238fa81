// Charts of a page, as inline SVG with legends. They are vectors that grow with the page, follow
// light and dark, and say more where they are pointed at. All take empty data; values that an axis
// cannot show (NaN, 0 on a logarithmic one) are left out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/axis.h"
#include "report/html.h"
#include "report/style.h"

namespace tessera::report {

/// Widths of charts: alone, and for two side by side (report/page.h), in pixels.
inline constexpr double kWide = 1072;
inline constexpr double kHalf = 520;

/// What stands around a chart, and its size.
struct Frame {
  std::string title{};
  std::string note{};  ///< below: what the reader would otherwise have to ask
  double width = kWide;
  double height = 320;  ///< charts of rows find their own
};

/// What parts of bars and spans are told apart by.
struct Category {
  std::string name{};
  std::optional<size_t> colour{};  ///< an index of the style's; its own in the list if left out
};

/// A value worth a line across the chart, with its name.
struct Limit {
  double value = 0;
  std::string name{};
  bool warns = true;  ///< better not passed
};

struct Point {
  double x = 0;
  double y = 0;
  std::string title{};  ///< shown when pointed at; the two numbers if left out
};

/// Points that belong together. A value of y that cannot be shown breaks the line.
struct Series {
  std::string name{};
  std::vector<Point> points{};
  std::optional<size_t> colour{};  ///< the same for what is to be compared
  bool line = true;
  bool markers = true;
  bool reference = false;  ///< published or expected: hollow markers, broken line
};

struct LineChart {
  Frame frame{};
  Axis x{};
  Axis y{};
  std::vector<Series> series{};
  std::optional<Limit> limit{};  ///< of y
};
Html chart(const LineChart& lines);

/// Bars one below another, each of stacked parts, their names to the left.
struct BarChart {
  struct Bar {
    std::string name{};
    std::vector<double> parts{};  ///< by category
    std::string value{};          ///< beside the bar; the sum if left out
  };
  Frame frame{};
  Axis value{};  ///< begins at 0
  std::vector<Category> categories{};
  std::vector<Bar> bars{};
};
Html chart(const BarChart& bars);

/// Narrow columns side by side for an ordered axis, each of stacked parts: hundreds are fine.
struct ColumnChart {
  struct Column {
    std::vector<double> parts{};  ///< by category
    std::string title{};
  };
  Frame frame{};
  std::string x_label{};
  double first = 0;  ///< position of the first column, and
  double step = 1;   ///< from one to the next
  Axis y{};          ///< begins at 0
  std::vector<Category> categories{};
  std::vector<Column> columns{};
  std::optional<Limit> limit{};
};
Html chart(const ColumnChart& columns);

struct Histogram {
  struct Bin {
    double from = 0;
    double to = 0;
    double count = 0;
  };
  Frame frame{};
  Axis x{};
  Axis y{};
  std::vector<Bin> bins{};
  std::optional<Limit> limit{};  ///< of x
  size_t colour = 0;
};
Html chart(const Histogram& histogram);

/// Counts values in bins of one round width, about `bins` of them.
std::vector<Histogram::Bin> bins_of(const std::vector<double>& values, size_t bins = 40);

/// What happened when: lanes with spans.
struct Timeline {
  struct Span {
    double begin = 0;
    double length = 0;
    size_t category = 0;
    std::string name{};  ///< written inside where there is room
    std::string title{};
  };
  struct Lane {
    std::string name{};
    std::vector<Span> spans{};
  };
  Frame frame{};
  Axis time{};
  std::vector<Category> categories{};
  std::vector<Lane> lanes{};
};
Html chart(const Timeline& timeline);

}  // namespace tessera::report
