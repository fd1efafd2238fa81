#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace tessera::base {

/// The number, if the whole text is one.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace tessera::base
