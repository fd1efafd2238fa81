// Options of a command whose texts are converted to values.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/machine.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "cli/parse.h"

namespace tessera::cli {

/// The names of machines, for help.
inline std::string machine_names() {
  return fmt::format("host, {}", fmt::join(Machine::builtin_names(), ", "));
}

inline double parse_real(const std::string& option, const std::string& text) {
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value)) throw invalid_value(option, text, "expected a number");
  return *value;
}

/// Adds the option that includes transfers from and to the host in times on a modelled machine.
inline void add_host_io_option(CLI::App& command, bool& host_io) {
  command.add_flag(
      "--host-io", host_io,
      "Include the transfers of inputs and outputs between a modelled machine and its host in times");
}

/// An option whose text `parse` converts to the value.
template <class Value, class Parse>
void add(CLI::App& command, const std::string& name, Value& value, Parse parse, const std::string& help) {
  command.add_option_function<std::string>(
      name, [&value, parse](const std::string& text) { value = parse(text); }, help);
}

/// An option that chooses one of a few values by name.
template <class Choice, class Value>
void add_choice(CLI::App& command, const std::string& name, Value& value,
                const std::map<std::string, Choice>& choices, const std::string& help) {
  const auto parse = [name, choices](const std::string& text) {
    const auto found = choices.find(text);
    if (found != choices.end()) return found->second;
    std::string known;
    for (const auto& [choice, meaning] : choices) known += (known.empty() ? "" : ", ") + choice;
    throw invalid_value(name, text, fmt::format("choose from {}", known));
  };
  add(command, name, value, parse, help);
}

/// An option that chooses one of these values by the names of name_of().
template <class Value>
void add_choice(CLI::App& command, const std::string& name, Value& value, std::initializer_list<Value> known,
                const std::string& help) {
  std::map<std::string, Value> choices;
  for (const Value each : known) choices.emplace(name_of(each), each);
  add_choice(command, name, value, choices, help);
}

template <class Seed>
void add_seed(CLI::App& command, const std::string& name, Seed& value, const std::string& help) {
  add(
      command, name, value, [name](const std::string& text) { return parse_seed(text, name); }, help);
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

/// An option that is a list of counts.
inline void add_counts(CLI::App& command, const std::string& name, std::vector<uint32_t>& values,
                       const std::string& help, uint32_t least = 0) {
  add(
      command, name, values,
      [name, least](const std::string& text) { return parse_counts(name, text, least); }, help);
}

template <class Count>
void add_count(CLI::App& command, const std::string& name, Count& value, const std::string& help,
               uint32_t most = kMostCount, uint32_t least = 1) {
  add(
      command, name, value,
      [name, least, most](const std::string& text) { return parse_count(name, text, least, most); }, help);
}

}  // namespace tessera::cli
