#include "io/text_scanner.h"

#include <algorithm>

namespace tessera::io {

uint64_t TextScanner::line_number() const { return 1 + static_cast<uint64_t>(std::count(begin_, at_, '\n')); }

bool TextScanner::is_tiny() const {
  long double value = 0;
  const auto result = std::from_chars(at_, end_, value);
  return result.ec == std::errc() && std::fabs(value) < 1;
}

void TextScanner::reject(const char* what, const std::string& expected) {
  skip_separators();
  const char* last = std::find_if(at_, end_, is_separator);
  const std::string_view found(at_, static_cast<size_t>(last - at_));
  fail(name_, "line {}: {}: {} was expected, and there is {}", line_number(), what, expected,
       found.empty() ? "the end of the file" : excerpt(found));
}

}  // namespace tessera::io
