// Options of a command whose texts are converted to values.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/parse.h"

namespace tessera::cli {

inline double parse_real(const std::string& option, const std::string& text) {
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value))
    throw UsageError(fmt::format("{} takes a number; '{}' is not one", option, text));
  return *value;
}

/// An option whose text `parse` converts to the value.
template <class Value, class Parse>
void add(CLI::App& command, const std::string& name, Value& value, Parse parse, const std::string& help) {
  command.add_option_function<std::string>(
      name, [&value, parse](const std::string& text) { value = parse(text); }, help);
}

template <class Value>
void add_real(CLI::App& command, const std::string& name, Value& value, const std::string& help) {
  add(
      command, name, value,
      [name](const std::string& text) { return static_cast<Value>(parse_real(name, text)); }, help);
}

inline void add_seconds(CLI::App& command, const std::string& name, double& value, const std::string& help) {
  add(
      command, name, value, [name](const std::string& text) { return parse_seconds(name, text); }, help);
}

/// A list of counts.
inline void add_counts(CLI::App& command, const std::string& name, std::vector<uint32_t>& values,
                       const std::string& help) {
  add(
      command, name, values, [name](const std::string& text) { return parse_counts(name, text); }, help);
}

inline void add_count(CLI::App& command, const std::string& name, uint32_t& value, const std::string& help,
                      uint32_t most = kMostCount) {
  add(
      command, name, value,
      [name, most](const std::string& text) { return parse_count(name, text, 1, most); }, help);
}

}  // namespace tessera::cli
