// Spiking networks with sparse spikes: forward, gradients, both.
//
//   bench_spiking [THREADS [SECONDS [CASE [FOLDER]]]]
//
// Runs all cases and activities, or one case, numbered from 0. With FOLDER, files there get the inputs that
// other programs need for the same work, and the results that they should find.
//
// Times are medians, and the least of all calls. "in use" is the memory of events and candidates that the
// gradients read, "reserved" the memory of their lists with capacity for the fullest step, "dense" the memory
// that dense backpropagation through time keeps. The second table has times over activity, and a fit by least
// squares: a fixed part (the update of neurons) and a part in proportion to activity.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "machine/model/machine.h"
#include "spiking/network.h"
#include "spmm/pinning.h"

namespace tessera::bench {
namespace {

struct Times {
  double median = 0, least = 0;
};

Times time_of(const std::function<void()>& run, double seconds) {
  std::vector<double> calls;
  for (double total = 0; total < seconds || calls.size() < 5; total += calls.back()) {
    calls.push_back(base::seconds_of(run));
  }
  std::ranges::sort(calls);
  return {calls[calls.size() / 2], calls[0]};
}

constexpr double kMs = 1e3;
constexpr double kMb = 1e-6;

struct Result {
  Times forward, gradients, both;
};

Result measure(SpikingBench& bench, Pinning& pinning, double seconds) {
  bench.forward();
  bench.gradients();
  pinning.bind_new_threads();
  const Times both = time_of(
      [&] {
        bench.forward();
        bench.gradients();
      },
      seconds);
  return {time_of([&] { bench.forward(); }, seconds / 2), time_of([&] { bench.gradients(); }, seconds / 2),
          both};
}

void print_case(const SpikingCase& of, Pinning& pinning, uint32_t threads, double seconds,
                const std::string& folder) {
  SpikingBench bench(of, threads);
  const Result r = measure(bench, pinning, seconds);
  if (!folder.empty()) bench.write(folder);
  std::string activity;
  for (size_t i = 0; i + 2 < of.sizes.size(); ++i)
    activity += fmt::format(" {:.1f}/{:.1f}", 100 * bench.firing(i), 100 * bench.listed(i));
  fmt::print(
      "{:<30} {:>5.1f} {:<18} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>9.2f} {:>9.2f} {:>8.1f} {:>6.0f}\n",
      of.name(), 100 * of.input_activity, activity, r.forward.median * kMs, r.gradients.median * kMs,
      r.both.median * kMs, r.both.least * kMs, bench.used_bytes() * kMb, bench.reserved_bytes() * kMb,
      bench.dense_bytes() * kMb, bench.dropped());
}

void print_activities(const std::vector<uint32_t>& sizes, Pinning& pinning, uint32_t threads,
                      double seconds) {
  std::vector<double> x, y;
  for (const double activity : {0.005, 0.01, 0.02, 0.05, 0.1}) {
    const SpikingCase of{
        .sizes = sizes, .input_activity = activity, .firing = activity, .listed = 1.5 * activity};
    SpikingBench bench(of, threads);
    const Result r = measure(bench, pinning, seconds / 2);
    x.push_back(activity);
    y.push_back(r.both.least);
    fmt::print("{:<30} {:>5.1f} {:>8.2f} ms\n", of.name(), 100 * activity, r.both.least * kMs);
  }
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sx += x[i];
    sy += y[i];
    sxx += x[i] * x[i];
    sxy += x[i] * y[i];
  }
  const auto n = static_cast<double>(x.size());
  const double slope = (n * sxy - sx * sy) / (n * sxx - sx * sx), fixed = (sy - slope * sx) / n;
  fmt::print("{:<30} {:.2f} ms + {:.2f} ms per 1 %\n", "", fixed * kMs, slope * kMs / 100);
}

std::vector<SpikingCase> cases() {
  return {{.sizes = {700, 256, 20}},
          {.sizes = {700, 1024, 1024, 20}},
          {.sizes = {700, 200, 20}, .recurrent = true},
          {.sizes = {700, 256, 20}, .batch = 32}};
}

void run(uint32_t threads, double seconds, const std::string& only, const std::string& folder) {
  Pinning pinning(threads);
  fmt::print("{} threads\n{:<30} {:>5} {:<18} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>6}\n", threads,
             "network", "in %", " fires/listed %", "forward", "grads", "both ms", "least", "in use MB",
             "reserved", "dense", "dropped");
  if (!only.empty()) return print_case(cases().at(std::stoul(only)), pinning, threads, seconds, folder);
  for (const SpikingCase& of : cases()) print_case(of, pinning, threads, seconds, folder);
  print_activities({700, 256, 20}, pinning, threads, seconds);
  print_activities({700, 1024, 1024, 20}, pinning, threads, seconds);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) try {
  const uint32_t threads =
      argc > 1 ? static_cast<uint32_t>(std::stoul(argv[1])) : tessera::machine::host().tiles;
  const double seconds = argc > 2 ? std::stod(argv[2]) : 2;
  tessera::bench::run(threads, seconds, argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "");
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
