#include "studies/common/figure.h"

#include <fmt/format.h>

#include "report/page.h"
#include "report/table.h"

namespace tessera::studies {

using report::Html;

std::string text(const Figure& figure) {
  report::Table table(figure.head);
  for (const auto& row : figure.rows) {
    std::vector<std::string> words;
    for (const Figure::Entry& entry : row) words.push_back(entry.words);
    table.add(std::move(words));
  }
  return fmt::format("{}\n{}{}{}", figure.title, table.text(), figure.note, figure.note.empty() ? "" : "\n");
}

Html html_of(const Figure& figure) {
  if (figure.rows.empty()) return {};
  std::vector<report::RichTable::Column> columns;
  for (const std::string& heading : figure.head)
    columns.push_back(
        {heading, columns.empty() ? report::RichTable::Align::left : report::RichTable::Align::right});
  report::RichTable table(std::move(columns));
  for (const auto& row : figure.rows) {
    std::vector<report::RichTable::Cell> cells;
    for (const Figure::Entry& entry : row) {
      cells.emplace_back(entry.words);
      cells.back().title = entry.title;
      cells.back().shade = entry.shade;
    }
    table.add(std::move(cells));
  }
  Html all = report::subheading(figure.title) + table.html();
  if (!figure.note.empty()) all += report::paragraph(figure.note);
  return all;
}

}  // namespace tessera::studies
