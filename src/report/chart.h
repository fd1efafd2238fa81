// Charts of a page, as inline SVG with legends. They scale with the page, follow its light or dark mode, and
// have tooltips. All accept empty data; values that an axis cannot show (NaN, 0 on a logarithmic axis) are
// omitted.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/axis.h"
#include "report/html.h"
#include "report/style.h"

namespace tessera::report {

/// Widths of charts, in pixels: alone, or two side by side (report/page.h).
inline constexpr double kWide = 1072;
inline constexpr double kHalf = 520;

/// The title, note and size of a chart.
struct Frame {
  std::string title{};
  std::string note{};  ///< below the chart: explanations
  double width = kWide;
  double height = 320;  ///< charts of rows compute their own
};

/// A category of stacked parts or spans, told apart by colour.
struct Category {
  std::string name{};
  std::optional<size_t> colour{};  ///< an index of the style's colours (default: the index in the list)
};

/// A value marked by a line across the chart, with its name.
struct Limit {
  double value = 0;
  std::string name{};
  bool warns = true;  ///< exceeding it is bad
};

struct Point {
  double x = 0;
  double y = 0;
  std::string title{};  ///< tooltip (default: the two numbers)
};

/// A series of points. A value of y that cannot be shown interrupts the line.
struct Series {
  std::string name{};
  std::vector<Point> points{};
  std::optional<size_t> colour{};  ///< the same for series to be compared
  bool line = true;
  bool markers = true;
  bool reference = false;  ///< published or expected: hollow markers, dashed line
};

struct LineChart {
  Frame frame{};
  Axis x{};
  Axis y{};
  std::vector<Series> series{};
  std::optional<Limit> limit{};  ///< a limit of y
};
Html chart(const LineChart& lines);

/// Horizontal bars of stacked parts, with their names on the left.
struct BarChart {
  struct Bar {
    std::string name{};
    std::vector<double> parts{};  ///< by category
    std::string value{};          ///< beside the bar (default: the sum)
  };
  Frame frame{};
  Axis value{};  ///< begins at 0
  std::vector<Category> categories{};
  std::vector<Bar> bars{};
};
Html chart(const BarChart& bars);

/// Narrow adjacent columns of stacked parts over an ordered axis; hundreds are possible.
struct ColumnChart {
  struct Column {
    std::vector<double> parts{};  ///< by category
    std::string title{};
  };
  Frame frame{};
  std::string x_label{};
  double first = 0;  ///< position of the first column
  double step = 1;   ///< distance between columns
  Axis y{};          ///< begins at 0
  std::vector<Category> categories{};
  std::vector<Column> columns{};
  std::optional<Limit> limit{};
};
Html chart(const ColumnChart& columns);
/// Adds a column for each tile or, of many, for the one of several neighbours that has the largest amount,
/// and says so in the note: it is the `most`, such as "fullest".
void add_tiles(ColumnChart& columns, std::span<const double> amounts, std::string_view most,
               const std::function<ColumnChart::Column(size_t tile)>& column_of);

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
  std::optional<Limit> limit{};  ///< a limit of x
  size_t colour = 0;
};
Html chart(const Histogram& histogram);

/// Counts values in about 40 bins of equal round width.
std::vector<Histogram::Bin> bins_of(const std::vector<double>& values);

/// Lanes with spans of time.
struct Timeline {
  struct Span {
    double begin = 0;
    double length = 0;
    size_t category = 0;
    std::string name{};  ///< written inside if there is room
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
/// The chart alone, with its legend, as an SVG file in light colours, which needs no style sheet.
std::string svg_file(const Timeline& timeline);

}  // namespace tessera::report
