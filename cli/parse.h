// Parsing of command-line numbers and lists.
#pragma once

#include <tessera/error.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse_number.h"

namespace tessera::cli {

using base::parse_number;

/// The error for a value that an option does not take; `wanted` is "choose from a, b", "expected a number", …
UsageError invalid_value(std::string_view option, std::string_view value, std::string_view wanted);

/// Upper limit of matrix dimensions.
inline constexpr uint32_t kMostCount = 0x7FFFFFFF;

// Comma-separated lists. All functions throw UsageError naming the option and the wrong item.
std::vector<std::string> parse_names(const std::string& text, char separator = ',');
uint32_t parse_count(const std::string& option, const std::string& text, uint32_t least = 0,
                     uint32_t most = kMostCount);
std::vector<uint32_t> parse_counts(const std::string& option, const std::string& text, uint32_t least = 0);
uint64_t parse_seed(const std::string& text, const std::string& option = "--seed");
/// Throws UsageError for a file of another type. Names without an extension, such as /dev/stdout, are
/// accepted.
void check_extension(const std::string& option, const std::string& file,
                     const std::vector<std::string>& known);
/// Whether two non-empty paths name the same file, which need not exist.
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);
double parse_seconds(const std::string& option, const std::string& text);  ///< finite and positive
std::vector<double> parse_densities(const std::string& text);              ///< 1/16, 0.1, …

/// The folder given by --data, or else by TESSERA_DATA; "" if neither is given.
std::string data_folder(const std::string& given);
/// The same for a data set that needs one. Throws UsageError if neither is given.
std::string data_folder_of(std::string_view dataset, const std::string& given);

}  // namespace tessera::cli
