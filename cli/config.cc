#include "cli/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <toml++/toml.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "cli/parse.h"
#include "io/source.h"

namespace tessera::cli {
namespace {

using Configs = std::span<const base::EmbeddedFile>;

std::vector<std::string_view> names_of_configs(Configs builtin) {
  std::vector<std::string_view> names;
  for (const base::EmbeddedFile& config : builtin) names.push_back(config.name);
  return names;
}

/// The value of --machine on the command line.
std::string machine_asked_for(const CLI::App& command) {
  const CLI::Option* option = command.get_option_no_throw("--machine");
  return option == nullptr || option->count() == 0 ? "" : option->results().back();
}

/// Whether a name, with or without the machine at its end, matches: with pod16 or bow_pod16, mlperf-v1.0
/// stands for mlperf-v1.0-pod16.
bool is_called(std::string_view whole, std::string_view name, std::string_view machine) {
  if (!whole.starts_with(name)) return false;
  const std::string_view rest = whole.substr(name.size());
  return rest.empty() || (rest.front() == '-' && machine.ends_with(rest.substr(1)));
}

std::string content_of(const std::string& name, Configs builtin, const std::string& machine) {
  const auto found = std::ranges::find_if(
      builtin, [&](const base::EmbeddedFile& config) { return is_called(config.name, name, machine); });
  if (found != builtin.end()) return std::string(found->content);
  if (!name.ends_with(".toml"))
    throw invalid_value(
        "--config", name,
        fmt::format(
            "choose from {}, or a .toml file; the end of a name, such as pod16, may follow from --machine",
            fmt::join(names_of_configs(builtin), ", ")));
  const std::vector<char> content = io::Source::open(name).read_all();
  return {content.begin(), content.end()};
}

toml::table table_of(const std::string& name, Configs builtin, const std::string& machine) {
  try {
    return toml::parse(content_of(name, builtin, machine), name);
  } catch (const toml::parse_error& e) {
    throw Error(fmt::format("{}:{}: {}", name, e.source().begin.line, e.description()));
  }
}

std::string text_of(const toml::node& node, const std::string& where) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto whole = node.value_exact<int64_t>()) return fmt::format("{}", *whole);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  throw UsageError(fmt::format("{} takes a string, a number, true or false", where));
}

void apply(const std::string& name, Configs builtin, CLI::App& command, std::set<std::string>& configured) {
  std::set<const CLI::Option*> seen;
  for (const auto& [key, value] : table_of(name, builtin, machine_asked_for(command))) {
    const std::string option = fmt::format("--{}", key.str());
    const std::string where = fmt::format("{}: '{}'", name, key.str());
    CLI::Option* found = command.get_option_no_throw(option);
    if (found == nullptr || option == "--config" || option == "--help")
      throw UsageError(fmt::format("{} is not an option of {}", where, command.get_name()));
    if (!seen.insert(found).second)
      throw UsageError(fmt::format("{} is given under another name too", where));
    if (found->count() != 0) continue;
    const std::string text = text_of(value, where);
    const bool is_flag = found->get_expected_max() == 0;
    if (text == "false" && is_flag && found->get_fnames().empty()) continue;
    // Under its negative name, such as no-bias-correction, a flag has the opposite value.
    found->add_result(is_flag ? found->get_flag_value(std::string(key.str()), text) : text);
    configured.insert(option);
  }
}

}  // namespace

void add_config_option(CLI::App& command, Configs builtin, std::set<std::string>& configured) {
  command.add_option_function<std::string>(
      "--config",
      [&command, builtin, &configured](const std::string& name) {
        apply(name, builtin, command, configured);
      },
      fmt::format("Take options that are not on the command line from {} or a .toml file",
                  fmt::join(names_of_configs(builtin), ", ")));
}

}  // namespace tessera::cli
