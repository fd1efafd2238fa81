#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::report {
namespace {

/// Characters, not bytes: continuation bytes of UTF-8 take no room.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string scaled(double value, double step, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  while (value >= step && unit + 1 != units.end()) {
    value /= step;
    ++unit;
  }
  return fmt::format("{:.3g} {}", value, *unit);
}

}  // namespace

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const std::string& cell : header_) widths.push_back(width_of(cell));
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  std::string out;
  const auto line = [&](const std::vector<std::string>& row) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - width_of(row[c]), ' ');
      const bool left = c == 0;
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
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  return scaled(seconds * 1e9, 1000, {"ns", "us", "ms"});
}

std::string bytes_text(double bytes) { return scaled(bytes, 1000, {"B", "kB", "MB", "GB", "TB"}); }

}  // namespace tessera::report
