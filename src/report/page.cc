#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/style.h"

namespace tessera::report {
namespace {

std::string section_id(size_t section) { return fmt::format("section-{}", section + 1); }

std::string_view class_of(RichTable::Align align) { return align == RichTable::Align::left ? "left" : ""; }

/// The background of a cell in a colour of this intensity.
std::string shade_style(double shade) {
  const double share = std::isfinite(shade) ? std::clamp(std::abs(shade), 0.0, 1.0) : 0.0;
  return fmt::format("background: color-mix(in srgb, var(--{}) {:.0f}%, transparent)",
                     shade < 0 ? "bad" : "good", 55 * share);
}

}  // namespace

Html Page::link_to_section(size_t section, std::string_view words) {
  return element("a", {{"href", fmt::format("#{}", section_id(section))}}, words);
}

std::string Page::html() const {
  Html contents;
  Html body;
  for (size_t i = 0; i < sections_.size(); ++i) {
    const Section& section = sections_[i];
    contents += element("li", {}, link_to_section(i, section.heading));
    body += element("section", {{"id", section_id(i)}}, element("h2", {}, section.heading) + section.content);
  }
  const Html head =
      element("meta", {{"charset", "utf-8"}}) +
      element("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}}) +
      element("meta", {{"name", "color-scheme"}, {"content", "light dark"}}) + element("title", {}, title_) +
      Html{"<style>" + std::string(kStyle) + "</style>"};
  Html top = element("h1", {}, title_);
  if (!subtitle_.empty()) top += element("p", {{"class", "subtitle"}}, subtitle_);
  top = element("header", {}, top);
  if (sections_.size() > 1) top += element("nav", {}, element("ol", {}, contents));
  return "<!DOCTYPE html>\n" +
         element("html", {{"lang", "en"}, {"xmlns", "http://www.w3.org/1999/xhtml"}},
                 element("head", {}, head) + element("body", {}, element("main", {}, top + body)))
             .code +
         "\n";
}

Html subheading(std::string_view words) { return element("h3", {}, words); }

Html key_figures(const std::vector<KeyFigure>& figures) {
  Html cards;
  for (const KeyFigure& f : figures)
    cards +=
        element("div", {{"class", f.bad ? "card bad" : "card"}},
                element("div", {{"class", "name"}}, f.name) + element("div", {{"class", "value"}}, f.value) +
                    element("div", {{"class", "note"}}, f.note));
  return element("div", {{"class", "cards"}}, cards);
}

Html side_by_side(const std::vector<Html>& pieces) {
  Html row;
  for (const Html& piece : pieces)
    if (!piece.empty()) row += element("div", {}, piece);
  return row.empty() ? row : element("div", {{"class", "row"}}, row);
}

Html table(const Table& plain) {
  std::vector<RichTable::Column> columns;
  for (const std::string& heading : plain.header()) columns.push_back({heading});
  for (size_t c : plain.left())
    if (c < columns.size()) columns[c].align = RichTable::Align::left;
  RichTable rich(std::move(columns));
  for (const std::vector<std::string>& row : plain.rows()) rich.add({row.begin(), row.end()});
  return rich.html();
}

void RichTable::add(std::vector<Cell> cells, bool highlighted) {
  Html row;
  for (size_t c = 0; c < cells.size(); ++c) {
    const Cell& cell = cells[c];
    const std::string style = cell.shade ? shade_style(*cell.shade) : "";
    const std::string_view align = c < columns_.size() ? class_of(columns_[c].align) : "";
    row += element("td", {{"class", align}, {"title", cell.title}, {"style", style}}, cell.content);
  }
  rows_ += element("tr", {{"class", highlighted ? "highlighted" : ""}}, row);
}

Html RichTable::html() const {
  Html head;
  for (const Column& column : columns_)
    head += element("th", {{"class", class_of(column.align)}}, column.heading);
  const Html table =
      element("table", {}, element("thead", {}, element("tr", {}, head)) + element("tbody", {}, rows_));
  return element("div", {{"class", "scroll"}}, table);
}

Html share_bar(double share, size_t colour) {
  const double percent = std::isfinite(share) ? 100 * std::clamp(share, 0.0, 1.0) : 0;
  return element(
      "span", {{"class", "share"}},
      element("span", {{"style", fmt::format("width: {:.1f}%; background: {}", percent, colour_of(colour))}},
              ""));
}

}  // namespace tessera::report
