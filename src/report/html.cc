#include "report/html.h"

#include <fmt/format.h>

#include <cstdint>

#include "base/utf8.h"

namespace tessera::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

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
    const size_t length = base::character_length(text);
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
