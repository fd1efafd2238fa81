#include "studies/popsparse/store.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "studies/common/json.h"

namespace tessera::studies::popsparse {
namespace {

using nlohmann::ordered_json;

/// The one of `all` that has this name.
template <class All>
auto named(const All& all, std::string_view name) {
  for (const auto& one : all)
    if (name_of(one) == name) return one;
  throw UsageError(fmt::format("'{}' is none of its kind", name));
}

}  // namespace

ordered_json json_of(const Result& r) {
  const Operand& o = r.cell.operand;
  return {{"mode", ops::name_of(o.mode)},
          {"type", ops::name_of(o.precision)},
          {"m", o.size},
          {"block", o.block},
          {"density", o.density},
          {"n", r.cell.n},
          {"fits", r.fits},
          {"reason", r.reason},
          {"nnz", r.nnz},
          {"seconds", or_null(r.seconds)},
          {"cycles", or_null(r.cycles)},
          {"update_seconds", or_null(r.update_seconds)},
          {"steps", or_null(r.steps)},
          {"tile_bytes", r.tile_bytes},
          {"tiles_used", r.tiles_used},
          {"verified", or_null(r.verified)},
          {"max_rel_error", or_null(r.max_rel_error)},
          {"tolerance", or_null(r.tolerance)}};
}

Result result_of(const ordered_json& json) {
  Result r;
  r.cell = {{named(ops::kModes, json.at("mode").get<std::string>()),
             named(ops::kPrecisions, json.at("type").get<std::string>()), json.at("m"), json.at("block"),
             json.at("density")},
            json.at("n")};
  r.fits = json.at("fits");
  r.reason = json.at("reason");
  r.nnz = json.at("nnz");
  r.seconds = optional_of<double>(json.at("seconds"));
  r.cycles = optional_of<double>(json.at("cycles"));
  r.update_seconds = optional_of<double>(json.at("update_seconds"));
  r.steps = optional_of<uint32_t>(json.at("steps"));
  r.tile_bytes = json.at("tile_bytes");
  r.tiles_used = json.at("tiles_used");
  r.verified = optional_of<bool>(json.at("verified"));
  r.max_rel_error = optional_of<double>(json.at("max_rel_error"));
  r.tolerance = optional_of<double>(json.at("tolerance"));
  return r;
}

Store::Store(std::string file, const ordered_json& made_on)
    : file_(std::move(file), made_on, [this](const ordered_json& json) {
        const Result result = result_of(json);
        results_[result.cell] = result;
      }) {}

const Result* Store::find(const Cell& cell) const {
  const std::lock_guard lock(mutex_);
  const auto found = results_.find(cell);
  return found == results_.end() ? nullptr : &found->second;
}

void Store::add(const Result& result) {
  file_.append(json_of(result));
  const std::lock_guard lock(mutex_);
  results_[result.cell] = result;
}

}  // namespace tessera::studies::popsparse
