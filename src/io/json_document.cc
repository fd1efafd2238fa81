#include "io/json_document.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "io/fail.h"
#include "io/json_text.h"

namespace tessera::io {
namespace {

/// Python writes numbers that JSON lacks, and configurations of models have such numbers. Nothing reads them:
/// they become 0.
void replace_special_numbers(std::vector<char>& text) {
  constexpr std::string_view kNumbers[] = {"-Infinity", "Infinity", "NaN"};
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\') ++i;
    if (in_string) continue;
    const std::string_view rest(text.data() + i, text.size() - i);
    for (const std::string_view number : kNumbers) {
      if (!rest.starts_with(number)) continue;
      text[i] = '0';
      std::fill_n(text.begin() + static_cast<ptrdiff_t>(i) + 1, number.size() - 1, ' ');
    }
  }
}

}  // namespace

nlohmann::json read_json_object(const Source& source) {
  constexpr uint64_t kLargest = uint64_t{64} << 20;
  if (source.size() > kLargest)
    fail(source.name(), "{} bytes of JSON; at most {} are read", source.size(), kLargest);
  std::vector<char> text = source.read_all();
  replace_special_numbers(text);
  nlohmann::json document;
  try {
    document = parse_json({text.data(), text.size()}, refuse_depth<nlohmann::json>(source.name()));
  } catch (const nlohmann::json::parse_error& error) {
    fail(source.name(), "it is not valid JSON at byte {}", error.byte);
  } catch (const nlohmann::json::out_of_range&) {
    fail(source.name(), "it has a number that is too large");
  }
  if (!document.is_object()) fail(source.name(), "its JSON is not an object");
  return document;
}

}  // namespace tessera::io
