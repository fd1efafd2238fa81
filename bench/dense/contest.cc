#include "dense/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/median.h"

namespace tessera::bench {
namespace {

using base::seconds_of;

// Longer than the idle threads of any library spin.
constexpr auto kPause = std::chrono::milliseconds(15);
constexpr double kRoundSeconds = 4e-3;

/// The median of the calls of a round, without the first, which wakes threads.
double round_of(const std::function<void()>& run, double& least) {
  std::this_thread::sleep_for(kPause);
  run();
  std::vector<double> calls;
  for (double total = 0; total < kRoundSeconds || calls.size() < 3; total += calls.back())
    calls.push_back(seconds_of(run));
  least = std::min(least, std::ranges::min(calls));
  return base::median(calls);
}

}  // namespace

void compete(std::vector<Contestant>& contestants, int rounds) {
  std::vector<std::vector<double>> medians(contestants.size());
  for (Contestant& contestant : contestants) contestant.least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < contestants.size(); ++i)
      medians[i].push_back(round_of(contestants[i].run, contestants[i].least));
  for (size_t i = 0; i < contestants.size(); ++i) contestants[i].seconds = base::median(medians[i]);
}

Ratio ratio_to_best(const std::vector<Contestant>& contestants) {
  const Contestant& own = contestants.front();
  double median = std::numeric_limits<double>::infinity(), least = median;
  for (const Contestant& other : std::span(contestants).subspan(1)) {
    median = std::min(median, other.seconds);
    least = std::min(least, other.least);
  }
  return contestants.size() == 1 ? Ratio{} : Ratio{median / own.seconds, least / own.least};
}

void print_header() {
  fmt::print("{:<28} {:<10} {:>9} {:>9} {:>9} {:>6} {:>6} {:>9}\n", "work", "library", "us", "least us",
             "GFLOP/s", "peak", "time", "predicted");
}

void print(const std::string& work, double flops, double peak_gflops,
           const std::vector<Contestant>& contestants) {
  for (const Contestant& c : contestants) {
    const double gflops = flops / c.seconds * 1e-9;
    fmt::print("{:<28} {:<10} {:>9.1f} {:>9.1f} {:>9.1f} {:>6.2f} {:>6.2f}", work, c.name, c.seconds * 1e6,
               c.least * 1e6, gflops, gflops / peak_gflops, c.seconds / contestants.front().seconds);
    fmt::print("{}\n", c.predicted > 0 ? fmt::format(" {:>9.2f}", c.predicted / c.seconds) : "");
  }
}

}  // namespace tessera::bench
