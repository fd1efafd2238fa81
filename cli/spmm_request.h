// The options of `tessera spmm`: parsing, and checks for conflicts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "studies/spmm/request.h"

namespace tessera::cli {

using ops::Mode;
using ops::Precision;
using studies::spmm::kPlanners;
using studies::spmm::Settings;
using studies::spmm::SpmmRequest;
using studies::spmm::Verify;

/// Comma-separated lists. Throw UsageError naming the option and the wrong item.
std::vector<Precision> parse_types(const std::string& text);
std::vector<Mode> parse_modes(const std::string& text);
std::vector<ProductKind> parse_products(const std::string& text);
std::map<std::string, int64_t> parse_knobs(const std::string& text);
/// KEY=VALUE or KEY=VALUE:VALUE:…, separated by commas: every combination of one value each.
std::vector<Settings> parse_settings(const std::string& text);

/// Throws UsageError if options conflict or one is missing.
void check(const SpmmRequest& request);

}  // namespace tessera::cli
