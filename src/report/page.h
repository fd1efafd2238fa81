// A self-contained page: no network, no scripts, light or dark as the reader's system prefers. For charts see
// report/chart.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/html.h"
#include "report/table.h"

namespace tessera::report {

class Page {
 public:
  /// `title` is the heading and the window title; `subtitle` is a line below it.
  Page(std::string title, std::string subtitle) : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  /// A section with a heading, listed in the contents if there are several.
  void add_section(std::string heading, Html content) {
    sections_.push_back({std::move(heading), std::move(content)});
  }

  /// A link to a section from anywhere on the page.
  static Html link_to_section(size_t section, std::string_view words);

  /// The whole file.
  std::string html() const;

 private:
  struct Section {
    std::string heading{};
    Html content;
  };

  std::string title_;
  std::string subtitle_;
  std::vector<Section> sections_;
};

/// A heading within a section.
Html subheading(std::string_view words);

/// One prominent number: its name, its value, and a line below it.
struct KeyFigure {
  std::string name{};
  std::string value{};
  std::string note{};
  bool bad = false;
};
Html key_figures(const std::vector<KeyFigure>& figures);

/// Pieces side by side if the window is wide enough.
Html side_by_side(const std::vector<Html>& pieces);

/// A text table on a page.
Html table(const Table& table);

/// A table with Html cells.
class RichTable {
 public:
  enum class Align : uint8_t { left, right };
  struct Column {
    std::string heading{};
    Align align = Align::right;
  };
  struct Cell {
    Html content;
    std::string title{};            ///< tooltip
    std::optional<double> shade{};  ///< −1 … 1: from bad to good
    Cell(Html html) : content(std::move(html)) {}
    Cell(std::string_view words) : content(text(words)) {}
    Cell(const std::string& words) : content(text(words)) {}
    Cell(const char* words) : content(text(words)) {}
  };

  explicit RichTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// `highlight` marks the most important row.
  void add(std::vector<Cell> cells, bool highlighted = false);
  Html html() const;

 private:
  std::vector<Column> columns_;
  Html rows_;
};

/// A bar over a fraction `share` (0 … 1) of its cell, in a chart's colour.
Html share_bar(double share, size_t colour);

}  // namespace tessera::report
