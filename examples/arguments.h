// The command lines of the examples.
#pragma once

#include <tessera/error.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

namespace example {

/// What an example takes. Options are names with a value: {"--steps", "COUNT"}.
struct Usage {
  std::string program;
  std::vector<std::pair<std::string, std::string>> options = {};
  bool takes_file = false;

  std::string text() const {
    std::string text = "usage: " + program;
    for (const auto& [name, value] : options) text += " [" + name + " " + value + "]";
    return text + (takes_file ? " [FILE]" : "");
  }
};

/// Values of the options given, by name; the name of a file is under "FILE".
class Arguments {
 public:
  /// Throws tessera::UsageError for arguments that the usage lacks.
  Arguments(const Usage& usage, const std::vector<std::string>& given) {
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string& argument = given[i];
      if (!argument.starts_with("-")) {
        if (!usage.takes_file) throw tessera::UsageError("unexpected argument '" + argument + "'");
        add("FILE", argument);
        continue;
      }
      if (!has_option(usage, argument)) throw tessera::UsageError("unknown option '" + argument + "'");
      if (i + 1 == given.size() || given[i + 1].starts_with("--"))
        throw tessera::UsageError(argument + " needs a value");
      add(argument, given[++i]);
    }
  }

  bool has(const std::string& name) const { return values_.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise = "") const {
    return has(name) ? values_.at(name) : otherwise;
  }
  /// A whole number from 1.
  uint32_t count(const std::string& name, uint32_t otherwise) const {
    const auto value = number(name, otherwise);
    if (value == 0) throw tessera::UsageError(name + " takes a whole number from 1, not '0'");
    return value;
  }
  double fraction(const std::string& name, double otherwise) const {
    const auto value = number(name, otherwise);
    // Also false for NaN.
    if (!(value > 0 && value <= 1))
      throw tessera::UsageError(name + " takes a number above 0, up to 1, not '" + text(name) + "'");
    return value;
  }

 private:
  static bool has_option(const Usage& usage, const std::string& name) {
    for (const auto& [option, value] : usage.options)
      if (option == name) return true;
    return false;
  }

  void add(const std::string& name, const std::string& value) {
    if (!values_.emplace(name, value).second) throw tessera::UsageError(name + " is given twice");
  }

  template <class Number>
  Number number(const std::string& name, Number otherwise) const {
    if (!has(name)) return otherwise;
    const std::string& value = values_.at(name);
    const char* end = value.data() + value.size();
    Number number = {};
    const auto [read, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc() || read != end)
      throw tessera::UsageError(name + " takes " + kind_of(number) + ", not '" + value + "'");
    return number;
  }
  static const char* kind_of(uint32_t /*number*/) { return "a whole number from 1"; }
  static const char* kind_of(double /*number*/) { return "a number above 0, up to 1"; }

  std::map<std::string, std::string> values_;
};

/// Runs an example's body with its arguments, and returns the status of the process: 2 if the arguments are
/// wrong, 1 for other errors. --help prints the usage alone.
template <class Body>
int run(const Usage& usage, int argc, char** argv, Body body) {
  const std::vector<std::string> given(argv + 1, argv + argc);
  try {
    for (const std::string& argument : given)
      if (argument == "--help" || argument == "-h") {
        std::puts(usage.text().c_str());
        return 0;
      }
    return body(Arguments(usage, given));
  } catch (const tessera::UsageError& error) {
    std::fprintf(stderr, "%s: %s; %s\n", usage.program.c_str(), error.what(), usage.text().c_str());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", usage.program.c_str(), error.what());
    return 1;
  }
}

}  // namespace example
