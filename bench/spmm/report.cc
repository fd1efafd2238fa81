#include "spmm/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/median.h"
#include "spmm/targets.h"

namespace tessera::bench {
namespace {

/// Above this many columns memory bandwidth is no longer the limit.
constexpr uint32_t kBandwidthBound = 16;

/// "1/8" if the density is one over a whole number, otherwise three digits.
std::string density_text(double density) {
  const double inverse = density > 0 ? 1 / density : 0;
  if (inverse >= 1 && std::abs(inverse - std::round(inverse)) < 1e-3 * inverse)
    return fmt::format("1/{:.0f}", inverse);
  return fmt::format("{:.3f}", density);
}

std::string milliseconds(double seconds) { return seconds == 0 ? "-" : fmt::format("{:.3f}", seconds * 1e3); }

/// "412.3 mkl", or "-".
std::string rate_and_name(const Comparison& comparison, const Timing* timing) {
  if (timing == nullptr) return "-";
  return fmt::format("{:.1f} {}", comparison.gflops(*timing), timing->peer);
}

std::string ratio(double value) { return value == 0 ? "-" : fmt::format("{:.2f}", value); }

std::string verdict_text(const Verdict& verdict) {
  const std::string aim = verdict.aim > 0 && verdict.measured >= verdict.aim ? " (aim reached)" : "";
  return fmt::format("{} {:.2f} {} {:.2f} {}{}", verdict.what, verdict.measured,
                     verdict.at_least ? ">=" : "<=", verdict.limit, verdict.reached() ? "ok" : "MISSED", aim);
}

std::string verdicts_text(const Comparison& comparison) {
  std::string text;
  for (const Verdict& verdict : judge(comparison)) text += (text.empty() ? "" : "; ") + verdict_text(verdict);
  return text;
}

/// Errors beyond rounding: libraries with wrong results.
std::string wrong_results(const Comparison& comparison) {
  const double epsilon = epsilon_of(comparison.work.type);
  std::string text;
  for (const Timing& timing : comparison.timings)
    if (timing.absent.empty() && !(timing.error <= 64 * epsilon))
      text += fmt::format(" WRONG RESULT of {}: error {:.1e}", timing.peer, timing.error);
  return text;
}

/// Tessera's forward product beside a gradient, and dynamic weights: one line each.
std::string companions(const Comparison& comparison) {
  std::string text;
  const Timing* forward = comparison.best(Kind::tessera, Task::forward);
  if (comparison.work.task != Task::forward && forward != nullptr)
    text += fmt::format("{:>40} {:>7} {:>9}\n", "", "forward", milliseconds(forward->seconds));
  if (const Timing* dynamic = comparison.best(Kind::tessera_dynamic)) {
    text += fmt::format("{:>40} {:>7} {:>9}", "", "dynamic", milliseconds(dynamic->seconds));
    if (dynamic->pattern.replaced > 0)
      text += fmt::format("  new pattern {} ms, dropping and growing 5 % {} ms",
                          milliseconds(dynamic->pattern.replaced), milliseconds(dynamic->pattern.drop_grow));
    text += "\n";
  }
  return text;
}

/// Median of a ratio over the comparisons that have it.
std::string median_line(const std::vector<Comparison>& comparisons, const char* what,
                        const std::function<double(const Comparison&)>& ratio_of) {
  std::vector<double> ratios;
  for (const Comparison& comparison : comparisons)
    if (const double value = ratio_of(comparison); value > 0) ratios.push_back(value);
  if (ratios.empty()) return {};
  return fmt::format("{}: median {:.2f}, lowest {:.2f}, of {}\n", what, base::median(ratios),
                     *std::min_element(ratios.begin(), ratios.end()), ratios.size());
}

double over(const Comparison& comparison, Kind kind) {
  const Timing* tessera = comparison.tessera();
  const Timing* other = comparison.best(kind);
  return tessera == nullptr || other == nullptr ? 0 : other->seconds / tessera->seconds;
}

}  // namespace

std::string head(const Setting& setting) {
  std::string text =
      fmt::format("{}, {} threads, {}: peak {:.0f} GFLOP/s; {} caches; arrays {} bytes after a cache line\n",
                  setting.cpu, setting.limits.threads, tessera::name_of(setting.limits.isa),
                  setting.peak_gflops, setting.cold ? "cold" : "warm", setting.array_offset);
  for (const std::string& version : setting.versions) text += fmt::format("  {}\n", version);
  for (const std::string& missing : setting.missing) text += fmt::format("  missing: {}\n", missing);
  return text +
         "GF/s: useful GFLOP/s, 2 nnz n / time. eff: useful rate / rate of the best dense library.\n"
         "x dense, x sparse: speed-up over the best library of its kind. time/read: time / time to read\n"
         "W, X and Y at the bandwidth of a buffer of their size. pred: predicted / measured time.\n\n";
}

std::string column_names() {
  return fmt::format(
      "{:>6} {:>6} {:>5} {:>3} {:>6} {:>4} {:>3} {:>7} {:>9} {:>7} {:>5} {:>18} {:>5} {:>7} "
      "{:>16} {:>8} {:>9} {:>5} {:>8}  {}\n",
      "m", "k", "n", "b", "d", "type", "lay", "product", "ms", "GF/s", "%peak", "dense GF/s", "eff",
      "x dense", "sparse GF/s", "x sparse", "time/read", "pred", "prep ms", "targets");
}

std::string row(const Comparison& comparison) {
  const Case& work = comparison.work;
  const Timing* tessera = comparison.tessera();
  std::string text = work.label.empty() ? "" : work.label + "\n";
  text += fmt::format("{:>6} {:>6} {:>5} {:>3} {:>6} {:>4} {:>3} {:>7} ", work.m, work.k, work.n, work.block,
                      density_text(work.label.empty() ? work.asked_density : work.density),
                      tessera::name_of(work.type), name_of(work.layout), name_of(work.task));
  const double rate = tessera == nullptr ? 0 : comparison.gflops(*tessera);
  const double predicted = tessera == nullptr ? 0 : tessera->predicted_seconds / tessera->seconds;
  text += fmt::format(
      "{:>9} {:>7} {:>5} {:>18} {:>5} {:>7} {:>16} {:>8} {:>9} {:>5} {:>8}  {}{}\n",
      milliseconds(tessera == nullptr ? 0 : tessera->seconds),
      tessera == nullptr ? "-" : fmt::format("{:.1f}", rate),
      tessera == nullptr ? "-" : fmt::format("{:.0f}", 100 * rate / comparison.peak_gflops),
      rate_and_name(comparison, comparison.best(Kind::dense)),
      ratio(tessera == nullptr ? 0 : comparison.efficiency(*tessera)), ratio(over(comparison, Kind::dense)),
      rate_and_name(comparison, comparison.best(Kind::sparse)), ratio(over(comparison, Kind::sparse)),
      ratio(tessera == nullptr || work.n > kBandwidthBound ? 0 : comparison.against_bandwidth(*tessera)),
      ratio(predicted), tessera == nullptr ? "-" : fmt::format("{:.1f}", tessera->prepare_seconds * 1e3),
      verdicts_text(comparison), wrong_results(comparison));
  return text + companions(comparison);
}

std::string summary(const std::vector<Comparison>& comparisons) {
  size_t reached = 0, all = 0;
  for (const Comparison& comparison : comparisons)
    for (const Verdict& verdict : judge(comparison)) {
      ++all;
      reached += verdict.reached() ? 1 : 0;
    }
  std::string text = all == 0 ? "" : fmt::format("\ntargets: {} of {} reached\n", reached, all);
  text += median_line(comparisons, "speed-up over the best dense library",
                      [](const Comparison& c) { return over(c, Kind::dense); });
  text += median_line(comparisons, "speed-up over the best sparse library",
                      [](const Comparison& c) { return over(c, Kind::sparse); });
  text += median_line(comparisons, "own dense / best dense library", [](const Comparison& c) {
    const Timing* own = c.best(Kind::tessera_dense);
    return own == nullptr ? 0 : c.efficiency(*own);
  });
  return text;
}

}  // namespace tessera::bench
