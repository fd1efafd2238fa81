#include "studies/spmm/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "io/json_text.h"
#include "report/table.h"
#include "studies/common/json.h"

namespace tessera::studies::spmm {
namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 2;

template <class T>
std::string or_dash(const std::optional<T>& value, fmt::format_string<const T&> format) {
  return value ? fmt::format(format, *value) : std::string("-");
}

std::string verdict(const SpmmResult& r) {
  if (!r.fits) return "does not fit";
  if (!r.failure.empty()) return "failed";
  if (!r.verified) return "-";
  return *r.verified ? fmt::format("{:.1e}", *r.max_rel_error) : "WRONG";
}

ordered_json categories(const compiler::Categories& bytes) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, count] : bytes) out[name] = count;
  return out;
}

ordered_json show_json_of(const program::PhaseTimes& seconds) {
  ordered_json out = ordered_json::object();
  for (size_t p = 0; p < program::kPhases; ++p)
    if (seconds.at[p] != 0) out[std::string(name_of(static_cast<program::Phase>(p)))] = seconds.at[p];
  return out;
}

ordered_json plan(const SpmmResult& r) {
  if (!r.failure.empty()) return nullptr;
  return {{"partition", r.partition},
          {"tiles", r.tiles},
          {"tiles_used", r.tiles_used},
          {"predicted_seconds", r.predicted_seconds}};
}

ordered_json memory(const SpmmResult& r) {
  if (!r.failure.empty()) return nullptr;
  return {{"total_bytes", r.memory.total_bytes},
          {"max_tile_bytes", r.memory.max_tile_bytes},
          {"tile_capacity_bytes", r.memory.tile_capacity_bytes},
          {"categories", categories(r.memory.fullest)},
          {"total_categories", categories(r.memory.total)},
          {"purposes", categories(r.memory.fullest_purposes)},
          {"total_purposes", categories(r.memory.total_purposes)}};
}

/// The machine figures changed by --set.
ordered_json settings(const SpmmCase& what) {
  ordered_json out = ordered_json::object();
  for (const machine::Setting& setting : what.settings) out[setting.key] = setting.value;
  return out;
}

ordered_json chips(const SpmmResult& r) {
  ordered_json list = ordered_json::array();
  for (const report::ChipSummary& chip : r.chips)
    list.push_back({{"chip", chip.chip},
                    {"seconds", chip.seconds.total()},
                    {"phases", show_json_of(chip.seconds)},
                    {"bytes", chip.bytes},
                    {"max_tile_bytes", chip.fullest_tile_bytes}});
  return list;
}

ordered_json links(const SpmmResult& r) {
  ordered_json list = ordered_json::array();
  for (const report::LinkSummary& link : r.links)
    list.push_back({{"from", link.from}, {"to", link.to}, {"bytes", link.bytes}, {"seconds", link.seconds}});
  return list;
}

/// Adds chips and links of machines with several chips.
ordered_json with_chips(ordered_json result, const SpmmResult& r) {
  if (r.chips.empty()) return result;
  result["chips"] = chips(r);
  result["links"] = links(r);
  return result;
}

ordered_json show_json_of(const SpmmResult& r) {
  const bool dense = r.what.mode == Mode::dense;
  const auto if_ran = [&](auto value) {
    return r.failure.empty() ? ordered_json(value) : ordered_json(nullptr);
  };
  return {{"machine", r.what.machine},
          {"settings", settings(r.what)},
          {"mode", name_of(r.what.mode)},
          {"product", flag_of(r.what.product)},
          {"type", name_of(r.what.precision)},
          {"block", dense ? ordered_json(nullptr) : ordered_json(r.what.block)},
          {"m", r.m},
          {"k", r.k},
          {"n", r.what.n},
          {"requested_density", or_null(r.what.density)},
          {"density", if_ran(r.density)},
          {"nnz", if_ran(r.nnz)},
          {"fill_in", if_ran(r.fill_in)},
          {"fits", r.fits ? if_ran(true) : ordered_json(false)},
          {"error", r.failure.empty() ? ordered_json(nullptr) : ordered_json(r.failure)},
          {"seconds", or_null(r.seconds)},
          {"cycles", or_null(r.cycles)},
          {"useful_gflops", or_null(r.useful_gflops())},
          {"peak_share", or_null(r.peak_fraction)},
          {"dense_seconds", or_null(r.dense_seconds)},
          {"speedup", or_null(r.speedup())},
          {"update_seconds", or_null(r.update_seconds)},
          {"steps", or_null(r.steps)},
          {"verified", or_null(r.verified)},
          {"max_abs_error", or_null(r.max_abs_error)},
          {"max_rel_error", or_null(r.max_rel_error)},
          {"tolerance", or_null(r.tolerance)},
          {"phases", r.seconds ? show_json_of(r.phases) : ordered_json(nullptr)},
          {"memory", memory(r)},
          {"plan", plan(r)}};
}

/// A product that failed has the density that was asked for.
std::string density_text(const SpmmResult& r) {
  if (r.what.mode == Mode::dense) return "1";
  return r.failure.empty() ? fmt::format("{:.4g}", r.density) : or_dash(r.what.density, "{:.4g}");
}

std::string show_rate_text(const SpmmResult& r) {
  const std::optional<double> rate = r.useful_gflops();
  return rate && *rate >= 1000 ? fmt::format("{:.0f}", *rate) : or_dash(rate, "{:.4g}");
}

std::string category_lines(const compiler::Categories& bytes) {
  std::string out;
  for (const auto& [name, count] : bytes)
    out += fmt::format("    {:<16} {:>10}\n", name, base::bytes_text(count));
  return out;
}

}  // namespace

report::Table table(std::span<const SpmmResult> results) {
  const auto any = [&](const auto& holds) { return std::any_of(results.begin(), results.end(), holds); };
  const bool products = any([](const SpmmResult& r) { return r.what.product != ProductKind::forward; });
  const bool updates = any([](const SpmmResult& r) { return r.update_seconds.has_value(); });
  const bool steps = any([](const SpmmResult& r) { return r.steps.has_value(); });
  std::vector<std::string> head = {"machine", "mode"};
  if (products) head.emplace_back("product");
  head.insert(head.end(), {"type", "block", "density", "n", "time", "GFLOP/s", "x dense"});
  if (updates) head.emplace_back("update");
  if (steps) head.emplace_back("steps");
  head.insert(head.end(), {"peak", "memory", "rel. error"});
  report::Table table(head);
  for (const SpmmResult& r : results) {
    const bool dense = r.what.mode == Mode::dense;
    std::vector<std::string> row = {machine_title(r.what), std::string(name_of(r.what.mode))};
    if (products) row.emplace_back(flag_of(r.what.product));
    row.insert(row.end(),
               {name_of(r.what.precision), dense ? "-" : std::to_string(r.what.block), density_text(r),
                std::to_string(r.what.n), r.seconds ? report::seconds_text(*r.seconds) : "-",
                show_rate_text(r), or_dash(r.speedup(), "{:.2f}")});
    if (updates) row.push_back(r.update_seconds ? report::seconds_text(*r.update_seconds) : "-");
    if (steps) row.push_back(or_dash(r.steps, "{}"));
    row.insert(row.end(), {r.peak_fraction ? fmt::format("{:.0f} %", 100 * *r.peak_fraction) : "-",
                           r.failure.empty() ? base::bytes_text(r.memory.max_tile_bytes) : "-", verdict(r)});
    table.add(row);
  }
  return table;
}

std::string details(const SpmmResult& r) {
  std::string out = fmt::format("\n{}: {} × {}, n = {}, {} non-zeros (density {:.4g}",
                                name_of(r.what.product), r.m, r.k, r.what.n, r.nnz, r.density);
  out += r.fill_in > 1 ? fmt::format(", fill-in {:.2f})\n", r.fill_in) : ")\n";
  out += fmt::format("  plan   {}; {} of {} tiles; predicted {}\n", r.partition, r.tiles_used, r.tiles,
                     report::seconds_text(r.predicted_seconds));
  if (r.seconds) {
    out += "  time   " + report::seconds_text(*r.seconds);
    for (size_t p = 0; p < program::kPhases; ++p)
      if (r.phases.at[p] != 0)
        out += fmt::format(", {} {}", name_of(static_cast<program::Phase>(p)),
                           report::seconds_text(r.phases.at[p]));
    out += '\n';
  }
  if (r.verified)
    out += fmt::format("  error  at most {:.2e} of |W|·|X| ({:.2e} allowed), {:.2e} absolute: {}\n",
                       *r.max_rel_error, *r.tolerance, *r.max_abs_error,
                       *r.verified ? "verified" : "NOT VERIFIED");
  out +=
      fmt::format("  memory {} in total, fullest tile {} of {}\n", base::bytes_text(r.memory.total_bytes),
                  base::bytes_text(r.memory.max_tile_bytes), base::bytes_text(r.memory.tile_capacity_bytes));
  out += category_lines(r.memory.fullest);
  std::string purposes;
  for (const auto& [name, bytes] : r.memory.fullest_purposes)
    purposes += fmt::format("{}{} {}", purposes.empty() ? "" : ", ", name, base::bytes_text(bytes));
  return out + fmt::format("  data   by purpose: {}\n", purposes);
}

std::string overflow(const SpmmResult& r) {
  return fmt::format("{} {} {} does not fit: {}", machine_title(r.what), name_of(r.what.mode),
                     name_of(r.what.precision), compiler::overflow_text(r.memory));
}

std::string json(std::span<const SpmmResult> results) {
  ordered_json list = ordered_json::array();
  for (const SpmmResult& r : results) list.push_back(with_chips(show_json_of(r), r));
  const ordered_json all = {{"schema", kSchema}, {"command", "spmm"}, {"results", list}};
  // Names of machines' files, and so messages, may have bytes that are no UTF-8.
  return io::json_text(all, 2, io::JsonErrors::replace) + "\n";
}

}  // namespace tessera::studies::spmm
