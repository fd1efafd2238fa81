// Tables in plain text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::report {

/// Columns are as wide as their widest cell. Left-aligned columns (by default the first) hold text; the
/// others, right-aligned, numbers.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<size_t> left = {0})
      : header_(std::move(header)), left_(std::move(left)) {}

  /// Adds a row of at most as many cells as the header has. Throws UsageError for more.
  void add(std::vector<std::string> row);
  const std::vector<std::string>& header() const { return header_; }
  const std::vector<size_t>& left() const { return left_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<size_t> left_;
  std::vector<std::vector<std::string>> rows_;
};

/// Characters of a text, not bytes: continuation bytes of UTF-8 do not count.
size_t characters_of(std::string_view text);

/// "1.23 ms"
std::string seconds_text(double seconds);
/// "12.34 %" of a fraction.
std::string percent_text(double fraction);

}  // namespace tessera::report
