#include "report/table.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <utility>

namespace tessera::report {

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void Table::add(std::vector<std::string> row) {
  if (row.size() > header_.size())
    throw UsageError(
        fmt::format("a row of {} cells is longer than a header of {}", row.size(), header_.size()));
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const std::string& cell : header_) widths.push_back(characters_of(cell));
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], characters_of(row[c]));
  std::string out;
  const auto line = [&](const std::vector<std::string>& row) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - characters_of(row[c]), ' ');
      const bool left = std::find(left_.begin(), left_.end(), c) != left_.end();
      out += (c == 0 ? "" : "  ") + (left ? row[c] + pad : pad + row[c]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  line(header_);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-6) return fmt::format("{:.3g} ns", seconds * 1e9);
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

std::string percent_text(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

}  // namespace tessera::report
