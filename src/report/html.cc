#include "report/html.h"

#include <fmt/format.h>

#include <cstdint>

namespace tessera::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the UTF-8 character at the beginning of `text`; 0 if it is invalid.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const uint8_t second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F) ||
                            (first == 0xEF && second == 0xBF && byte(2) > 0xBD);
  return overlong || no_character ? 0 : length;
}

std::string_view escaped_ascii(char c) {
  switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return {};
  }
}

std::string opening(std::string_view name, Attributes attributes) {
  std::string code = fmt::format("<{}", name);
  for (const auto& [key, value] : attributes)
    if (!value.empty()) code += fmt::format(" {}=\"{}\"", key, escaped(value));
  return code;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = character_length(text);
    const char c = text[0];
    const bool control = static_cast<uint8_t>(c) < 0x20 && c != '\n' && c != '\t';
    if (length == 0 || control)
      out += kReplacement;
    else if (const std::string_view entity = escaped_ascii(c); !entity.empty())
      out += entity;
    else
      out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

Html text(std::string_view words) { return {escaped(words)}; }

Html element(std::string_view name, Attributes attributes, const Html& content) {
  return {opening(name, attributes) + ">" + content.code + "</" + std::string(name) + ">"};
}

Html element(std::string_view name, Attributes attributes, std::string_view words) {
  return element(name, attributes, text(words));
}

Html element(std::string_view name, Attributes attributes) { return {opening(name, attributes) + "/>"}; }

Html paragraph(std::string_view words) { return element("p", {}, words); }

Html folded(std::string_view summary, const Html& content) {
  return element("details", {}, element("summary", {}, summary) + content);
}

}  // namespace tessera::report
