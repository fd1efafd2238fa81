#include "cli/parse.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace tessera::cli {
namespace {

std::optional<double> parse_density(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return parse_number<double>(text);
  const auto above = parse_number<double>(text.substr(0, slash));
  const auto below = parse_number<double>(text.substr(slash + 1));
  if (!above || !below || *below == 0) return std::nullopt;
  return *above / *below;
}

}  // namespace

std::vector<std::string> parse_names(const std::string& text, char separator) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

uint32_t parse_count(const std::string& option, const std::string& text, uint32_t least, uint32_t most) {
  const auto count = parse_number<uint32_t>(text);
  if (!count || *count < least || *count > most)
    throw UsageError(
        fmt::format("{} takes a whole number from {} to {}; '{}' is not one", option, least, most, text));
  return *count;
}

std::vector<uint32_t> parse_counts(const std::string& option, const std::string& text, uint32_t least) {
  std::vector<uint32_t> counts;
  for (const std::string& item : parse_names(text)) {
    const auto count = parse_number<uint32_t>(item);
    if (!count || *count < least || *count > kMostCount)
      throw UsageError(
          fmt::format("{} takes whole numbers from {} to {}, separated by commas; '{}' is not one", option,
                      least, kMostCount, item));
    counts.push_back(*count);
  }
  return counts;
}

void check_extension(const std::string& option, const std::string& file,
                     const std::vector<std::string>& known) {
  const std::string extension = std::filesystem::path(file).extension().string();
  if (!extension.empty() && std::ranges::find(known, extension) == known.end())
    throw UsageError(fmt::format("{} writes a file of type {}; '{}' is none", option, known.front(), file));
}

bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;  // of files that do not exist
  const auto canonical = [&](const std::filesystem::path& file) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(file), ignored);
  };
  return std::filesystem::equivalent(a, b, ignored) || canonical(a) == canonical(b);
}

uint64_t parse_seed(const std::string& text, const std::string& option) {
  const auto seed = parse_number<uint64_t>(text);
  if (!seed)
    throw UsageError(
        fmt::format("{} takes a whole number from 0 to {}; '{}' is not one", option, UINT64_MAX, text));
  return *seed;
}

double parse_seconds(const std::string& option, const std::string& text) {
  const auto seconds = parse_number<double>(text);
  if (!seconds || !std::isfinite(*seconds) || *seconds <= 0)
    throw UsageError(
        fmt::format("{} takes seconds, such as 10 or 0.5; '{}' is not a number of seconds", option, text));
  return *seconds;
}

std::vector<double> parse_densities(const std::string& text) {
  std::vector<double> densities;
  for (const std::string& item : parse_names(text)) {
    const auto density = parse_density(item);
    if (!density || !(*density >= 0 && *density <= 1))
      throw UsageError(
          fmt::format("--density takes fractions from 0 to 1, such as 1/16 or 0.1; '{}' is not one", item));
    densities.push_back(*density);
  }
  return densities;
}

std::string data_folder(const std::string& given) {
  const char* variable = std::getenv("TESSERA_DATA");
  return given.empty() && variable != nullptr ? variable : given;
}

}  // namespace tessera::cli
