#include "cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/parse.h"

namespace tessera::cli {
namespace {

std::string names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return fmt::format("choose from {}", fmt::join(names, ", "));
}

/// The argument after a command on the command line; "": there is none.
std::string after(const std::string& path, const CLI::App& command,
                  const std::vector<std::string>& arguments) {
  auto next = arguments.begin();
  if (!path.empty()) next = std::ranges::find(arguments, command.get_name());
  if (!path.empty() && next != arguments.end()) ++next;
  return next == arguments.end() ? "" : *next;
}

/// CLI11 tells kinds of errors apart by name (but gives errors of unexpected arguments the command's name),
/// and says only in their texts which option they concern.
std::string argument_message(const CLI::ParseError& error) {
  const std::string text = error.what();
  const std::string kind = error.get_name();
  const size_t colon = text.find(": ");
  const std::string before = text.substr(0, colon);
  const std::string after = colon == std::string::npos ? "" : text.substr(colon + 2);
  if (text.starts_with("The following argument"))
    return fmt::format("unexpected argument{} '{}'", text.find("arguments") < colon ? "s" : "", after);
  if (kind == "RequiredError" && text.ends_with(" is required"))
    return fmt::format("the argument {} is missing", text.substr(0, text.size() - 12));
  if (kind == "ArgumentMismatch" && after.starts_with("At Most"))
    return fmt::format("{} is given more than once; give it once", before);
  if (kind == "ArgumentMismatch" && after.ends_with("missing"))
    return fmt::format("{} is given without a value; pass one", before);
  const size_t of = after.find(" not in {");
  if (kind != "ValidationError" || of == std::string::npos || !after.ends_with("}")) return text;
  std::string known = after.substr(of + 9, after.size() - of - 10);
  for (size_t comma = 0; (comma = known.find(',', comma)) != std::string::npos; comma += 2)
    known.replace(comma, 1, ", ");
  return invalid_value(before, after.substr(0, of), fmt::format("choose from {}", known)).what();
}

}  // namespace

std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments) {
  const CLI::App* command = &app;
  std::string path;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += command->get_name() + " ";
  }
  std::string message = argument_message(error);
  if (command->get_require_subcommand_min() > 0) {
    const std::string next = after(path, *command, arguments);
    if (!next.empty() && !next.starts_with('-'))
      message = fmt::format("unknown command '{}{}' ({})", path, next, names_of_commands(*command));
    else if (next.empty() || error.get_name() == "RequiredError")
      message = fmt::format("a command is missing{} ({})",
                            path.empty() ? "" : " after '" + command->get_name() + "'",
                            names_of_commands(*command));
  }
  return fmt::format("{}; see tessera {}--help", message, path);
}

}  // namespace tessera::cli
