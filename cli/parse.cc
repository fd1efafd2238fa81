#include "cli/parse.h"

#include <fmt/format.h>

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

UsageError invalid_value(std::string_view option, std::string_view value, std::string_view wanted) {
  return UsageError(fmt::format("{}: invalid value '{}' ({})", option, value, wanted));
}

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
    throw invalid_value(option, text, fmt::format("expected a whole number from {} to {}", least, most));
  return *count;
}

std::vector<uint32_t> parse_counts(const std::string& option, const std::string& text, uint32_t least) {
  std::vector<uint32_t> counts;
  for (const std::string& item : parse_names(text)) {
    const auto count = parse_number<uint32_t>(item);
    if (!count || *count < least || *count > kMostCount)
      throw invalid_value(
          option, item,
          fmt::format("expected whole numbers from {} to {}, separated by commas", least, kMostCount));
    counts.push_back(*count);
  }
  return counts;
}

void check_extension(const std::string& option, const std::string& file,
                     const std::vector<std::string>& known) {
  const std::string extension = std::filesystem::path(file).extension().string();
  if (!extension.empty() && std::ranges::find(known, extension) == known.end())
    throw invalid_value(option, file, fmt::format("expected the name of a {} file", known.front()));
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
    throw invalid_value(option, text, fmt::format("expected a whole number from 0 to {}", UINT64_MAX));
  return *seed;
}

double parse_seconds(const std::string& option, const std::string& text) {
  const auto seconds = parse_number<double>(text);
  if (!seconds || !std::isfinite(*seconds) || *seconds <= 0)
    throw invalid_value(option, text, "expected seconds, such as 10 or 0.5");
  return *seconds;
}

std::vector<double> parse_densities(const std::string& text) {
  std::vector<double> densities;
  for (const std::string& item : parse_names(text)) {
    const auto density = parse_density(item);
    if (!density || !(*density >= 0 && *density <= 1))
      throw invalid_value("--density", item, "expected fractions from 0 to 1, such as 1/16 or 0.1");
    densities.push_back(*density);
  }
  return densities;
}

std::string data_folder(const std::string& given) {
  const char* variable = std::getenv("TESSERA_DATA");
  return given.empty() && variable != nullptr ? variable : given;
}

std::string data_folder_of(std::string_view dataset, const std::string& given) {
  std::string folder = data_folder(given);
  if (folder.empty())
    throw UsageError(
        fmt::format("--dataset {} needs its folder: pass --data FOLDER, or set TESSERA_DATA", dataset));
  return folder;
}

}  // namespace tessera::cli
