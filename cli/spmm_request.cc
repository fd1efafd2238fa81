#include "cli/spmm_request.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <string_view>

#include "cli/parse.h"

namespace tessera::cli {
namespace {

/// Parses an option's list of named items.
template <class Item, class Name>
std::vector<Item> parse_named(std::string_view option, const std::string& text,
                              std::initializer_list<Item> known, const Name& name) {
  std::string names;
  for (const Item& item : known) names += fmt::format("{}{}", names.empty() ? "" : ", ", name(item));
  std::vector<Item> items;
  for (const std::string& wanted : parse_names(text)) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const Item& item) { return name(item) == wanted; });
    if (found == known.end()) throw invalid_value(option, wanted, fmt::format("choose from {}", names));
    items.push_back(*found);
  }
  return items;
}

std::vector<double> parse_values(const std::string& key, const std::string& text) {
  std::vector<double> values;
  for (const std::string& item : parse_names(text, ':')) {
    const auto value = parse_number<double>(item);
    if (!value)
      throw UsageError(
          fmt::format("--set {}: '{}' is not a number; separate several numbers by colons", key, item));
    values.push_back(*value);
  }
  return values;
}

}  // namespace

std::vector<Precision> parse_types(const std::string& text) {
  return parse_named("--type", text, {Precision{Type::f32}, {Type::f16}, {Type::bf16}, {Type::f16, true}},
                     [](const Precision& precision) { return name_of(precision); });
}

std::vector<Mode> parse_modes(const std::string& text) {
  return parse_named("--mode", text, {Mode::static_sparse, Mode::dynamic_sparse, Mode::dense},
                     [](Mode mode) { return name_of(mode); });
}

std::vector<ProductKind> parse_products(const std::string& text) {
  return parse_named("--product", text,
                     {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm},
                     studies::spmm::flag_of);
}

std::map<std::string, int64_t> parse_knobs(const std::string& text) {
  std::map<std::string, int64_t> knobs;
  for (const std::string& item : parse_names(text)) {
    const size_t equals = item.find('=');
    const auto value = equals == std::string::npos
                           ? std::nullopt
                           : parse_number<int64_t>(std::string_view(item).substr(equals + 1));
    if (!value)
      throw invalid_value("--plan", item,
                          "expected KEY=NUMBER, separated by commas; --print plan shows the keys");
    if (!knobs.emplace(item.substr(0, equals), *value).second)
      throw UsageError(fmt::format("--plan has '{}' twice; give each key once", item.substr(0, equals)));
  }
  return knobs;
}

std::vector<Settings> parse_settings(const std::string& text) {
  std::vector<Settings> combinations = {{}};
  std::set<std::string> keys;
  for (const std::string& item : parse_names(text)) {
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    if (equals == std::string::npos || key.empty())
      throw invalid_value("--set", item,
                          "expected KEY=VALUE, separated by commas; tessera machines shows the keys");
    if (!keys.insert(key).second)
      throw UsageError(
          fmt::format("--set has '{0}' twice; give {0} once, as {0}=VALUE:VALUE to run several values", key));
    std::vector<Settings> longer;
    for (const double value : parse_values(key, item.substr(equals + 1)))
      for (Settings settings : combinations) {
        settings.push_back({key, value});
        longer.push_back(std::move(settings));
      }
    combinations = std::move(longer);
  }
  return combinations;
}

void check(const SpmmRequest& r) {
  const bool only_host =
      std::all_of(r.machines.begin(), r.machines.end(), [](const auto& m) { return m == "host"; });
  if (only_host && r.settings != std::vector<Settings>{{}})
    throw UsageError("--set is for modelled machines, such as --machine bow");
  if (only_host && r.planner == ops::Planner::vendor)
    throw UsageError("--planner vendor is for modelled machines, such as --machine bow");
  if (r.n.empty()) throw UsageError("--n is missing: the number of columns of X, such as --n 512");
  if (r.estimate && r.verify != Verify::automatic && r.verify != Verify::none)
    throw UsageError("--estimate computes no results for --verify to compare; leave out one of them");
  check_extension("--report", r.report, {".html", ".htm"});
  check_extension("--trace", r.trace, {".json"});
  if (!r.report.empty() && r.report == r.trace)
    throw UsageError(fmt::format("--report and --trace both name '{}'; give them different files", r.report));
  if (r.json && !r.print.empty())
    throw UsageError("--print cannot be combined with --json; leave out one of them");
  if (!r.weights.empty()) {
    if (r.m || r.k || !r.densities.empty() || r.pattern)
      throw UsageError(
          "the file of --weights has a shape and a pattern; leave out --m, --k, --density and --pattern");
    return;
  }
  if (!r.tensor.empty()) throw UsageError("--tensor is for --weights FILE");
  const bool only_dense = r.modes == std::vector{Mode::dense};
  if (!r.m || !r.k || (r.densities.empty() && !only_dense))
    throw UsageError("pass --weights FILE, or --m, --k and --density for a generated weight");
}

}  // namespace tessera::cli
