#include "cli/spmm_request.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

namespace tessera::cli {
namespace {

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_density(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return parse_number<double>(text);
  const auto above = parse_number<double>(text.substr(0, slash));
  const auto below = parse_number<double>(text.substr(slash + 1));
  if (!above || !below || *below == 0) return std::nullopt;
  return *above / *below;
}

}  // namespace

std::vector<std::string> parse_names(const std::string& text) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::vector<uint32_t> parse_counts(const std::string& option, const std::string& text) {
  std::vector<uint32_t> counts;
  for (const std::string& item : parse_names(text)) {
    const auto count = parse_number<uint32_t>(item);
    if (!count || *count > 0x7FFFFFFF)
      throw UsageError(fmt::format("{} takes whole numbers from 0 to 2147483647, separated by commas; '{}' is "
                                   "not one", option, item));
    counts.push_back(*count);
  }
  return counts;
}

std::vector<double> parse_densities(const std::string& text) {
  std::vector<double> densities;
  for (const std::string& item : parse_names(text)) {
    const auto density = parse_density(item);
    if (!density || !(*density >= 0 && *density <= 1))
      throw UsageError(fmt::format("--density takes shares from 0 to 1, such as 1/16 or 0.1; '{}' is not one", item));
    densities.push_back(*density);
  }
  return densities;
}

std::string name_of(const Precision& precision) {
  return precision.f32_partials ? "f16-f32" : std::string(name_of(precision.type));
}

std::vector<Precision> parse_types(const std::string& text) {
  constexpr Precision kKnown[] = {{Type::f32}, {Type::f16}, {Type::bf16}, {Type::f16, true}};
  std::vector<Precision> types;
  for (const std::string& item : parse_names(text)) {
    const auto known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                    [&](const Precision& precision) { return name_of(precision) == item; });
    if (known == std::end(kKnown))
      throw UsageError(fmt::format("--type takes f32, f16, bf16 and f16-f32; '{}' is none of them", item));
    types.push_back(*known);
  }
  return types;
}

std::vector<Mode> parse_modes(const std::string& text) {
  std::vector<Mode> modes;
  for (const std::string& item : parse_names(text)) {
    if (item == "static")
      modes.push_back(Mode::sparse);
    else if (item == "dense")
      modes.push_back(Mode::dense);
    else
      throw UsageError(fmt::format("--mode takes static and dense; '{}' is neither", item));
  }
  return modes;
}

std::map<std::string, int64_t> parse_knobs(const std::string& text) {
  std::map<std::string, int64_t> knobs;
  for (const std::string& item : parse_names(text)) {
    const size_t equals = item.find('=');
    const auto value = equals == std::string::npos ? std::nullopt : parse_number<int64_t>(std::string_view(item).substr(equals + 1));
    if (!value)
      throw UsageError(fmt::format("--plan takes KEY=NUMBER, separated by commas; '{}' is not one "
                                   "(--print plan shows the keys)", item));
    knobs[item.substr(0, equals)] = *value;
  }
  return knobs;
}

void check(const SpmmRequest& r) {
  if (r.n.empty()) throw UsageError("--n is missing: the number of columns of X, such as --n 512");
  if (!r.weights.empty()) {
    if (r.m != 0 || r.k != 0 || !r.densities.empty())
      throw UsageError("--weights brings its own shape and density; leave out --m, --k and --density");
    return;
  }
  if (!r.tensor.empty()) throw UsageError("--tensor names a tensor of a --weights file; there is none");
  if (r.densities.empty())
    throw UsageError("pass --weights FILE, or --m, --k and --density of a generated weight");
}

}  // namespace tessera::cli
