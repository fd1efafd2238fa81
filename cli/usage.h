// Messages for command lines that cannot be parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

/// What is wrong with the arguments, and which command shows how they must be.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments);

}  // namespace tessera::cli
